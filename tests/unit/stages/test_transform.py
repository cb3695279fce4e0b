"""DeepHunter's mutation and its bound: against a slow loop, and over whole lines."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.randomness import Rows, Stream
from assay.core.registry import bind
from assay.core.transforms import KINDS, Drawn, draw, transformed
from assay.subjects.bench import Bench
from assay.subjects.sources.module import ModuleTarget

SHAPE, UNIT = (1, 10, 10), (0.0, 1.0)
AFFINE = ("translation", "scale", "shear", "rotation")
REPEATED = {"paper": ("contrast", "brightness", "blur", "noise"), "code": ("noise", "pixels")}
ONCE = {"paper": AFFINE, "code": (*AFFINE, "contrast", "brightness", "blur")}


def bench(bounds: tuple[float, float] = UNIT, shape: tuple[int, ...] = SHAPE) -> Bench:
    return Bench(ModuleTarget(nn.Sequential(nn.Flatten(), nn.Linear(100, 2)), InputSpec(shape, bounds, ("a", "b"))))


def seeds(n: int, bounds: tuple[float, float] = UNIT) -> Cases:
    """Smooth images: a bright blob on black, as digits are."""
    place = torch.arange(10.0)
    centre = 3 + 4 * torch.rand(n, 2, generator=torch.Generator().manual_seed(0))
    lines = torch.exp(-((place - centre[:, :, None]) ** 2) / 6)
    x = bounds[0] + (bounds[1] - bounds[0]) * (lines[:, 0, :, None] * lines[:, 1, None, :])[:, None]
    return Cases.of(x).note(seed_x=x)


def mutated(cases: Cases, step: int = 0, bounds: tuple[float, float] = UNIT, **params: Any) -> Cases:
    made = bind("mutator", "transform", params)(bench(bounds), cases, rng=Stream(step).rows(cases.origin))
    assert isinstance(made, Cases)
    return made


def fits(cases: Cases, alpha: float = 0.02, beta: float = 0.2, bounds: tuple[float, float] = UNIT) -> np.ndarray:
    """The rule once more, from what is stored of a case and nothing else."""
    span = bounds[1] - bounds[0]
    x, reference = (t.double().numpy().reshape(len(cases), -1) for t in (cases.x, cases.info["line_ref"]))
    gap = np.abs(x - reference)
    few = cases.info["line_l0"].numpy() + (gap >= span / 510).sum(1) < alpha * x.shape[1]
    small = np.maximum(cases.info["line_linf"].numpy(), gap.max(1)) < beta * span
    verdict: np.ndarray = few | small
    return verdict


def slow(x: Tensor, reference: Tensor, used: tuple[int, float], moved: bool, rng: Rows, group: str, tries: int) -> Any:
    """One row: draws in turn until one fits."""

    def apart(one: Tensor, other: Tensor) -> tuple[int, float]:
        gap = (one - other).abs()
        return int((gap >= 1 / 510).sum()), float(gap.max())

    for i in range(tries):
        kinds = REPEATED[group] if moved else (*REPEATED[group], *ONCE[group])
        drawn: Drawn = draw(rng.at(i), kinds)
        once = bool(drawn.is_one_of(ONCE[group]))
        new, new_reference = transformed(x, drawn, UNIT), reference
        carried = used
        if once:
            new_reference, carried = transformed(reference, drawn, UNIT), apart(x, reference)
        count, largest = apart(new, new_reference)
        changed = not torch.equal(new, x)
        if changed and (carried[0] + count < 0.02 * x.numel() or max(carried[1], largest) < 0.2):
            return new, new_reference, moved or once, carried
    return x, reference, moved, used


@pytest.mark.parametrize("group", ["paper", "code"])
def test_it_is_the_slow_loop_over_draws(group: str) -> None:
    cases = seeds(40)
    for step in range(4):
        made = mutated(cases, step, group=group, tries=6)
        rng = Stream(step).rows(cases.origin)
        for i in range(len(cases)):
            one = slice(i, i + 1)
            info = cases.info
            used = (int(info["line_l0"][i]), float(info["line_linf"][i])) if step else (0, 0.0)
            reference = info["line_ref"][one] if step else cases.x[one]
            moved = bool(info["line_affine"][i]) if step else False
            x, ref, now, carried = slow(cases.x[one], reference, used, moved, rng[one], group, 6)
            assert torch.equal(made.x[one], x)
            assert torch.equal(made.info["line_ref"][one], ref)
            assert bool(made.info["line_affine"][i]) == now
            assert int(made.info["line_l0"][i]) == carried[0]
            assert float(made.info["line_linf"][i]) == pytest.approx(carried[1])
        cases = made
    assert cases.info["line_affine"].any()
    assert cases.info["line_l0"].any(), "some had changed before they moved"


@pytest.mark.parametrize("bounds", [UNIT, (-1.0, 1.0)])
@pytest.mark.parametrize("group", ["paper", "code"])
def test_every_case_of_a_line_keeps_the_rule_and_moves_once(group: str, bounds: tuple[float, float]) -> None:
    cases = seeds(64, bounds)
    judge = bind("filter", "few_or_small", {})
    for step in range(12):
        made = mutated(cases, step, bounds, group=group)
        assert fits(made, bounds=bounds).all()
        assert judge(bench(bounds), made).all()
        assert made.x.min() >= bounds[0]
        assert made.x.max() <= bounds[1]
        if step:
            before = cases.info["line_affine"]
            stays = torch.equal(made.info["line_ref"][before], cases.info["line_ref"][before])
            assert stays, "a reference that has moved stays where it is"
            for name in ("line_l0", "line_linf"):
                assert torch.equal(made.info[name][before], cases.info[name][before])
            assert made.info["line_affine"][before].all()
        still = ~made.info["line_affine"]
        assert torch.equal(made.info["line_ref"][still], made.info["seed_x"][still])
        assert not made.info["line_l0"][still].any()
        cases = made
    assert cases.info["line_affine"].float().mean() > 0.9


def test_a_moved_reference_is_the_seed_after_one_affine_transform() -> None:
    """Found again by trying every parameter there is."""
    cases = seeds(24)
    for step in range(5):
        cases = mutated(cases, step)
    last = len(KINDS[:4])
    every = [i for i in range(1000) if _kind(i) < last]
    for i in cases.info["line_affine"].nonzero().flatten().tolist():
        seed = cases.info["seed_x"][i : i + 1].expand(len(every), -1, -1, -1)
        could = transformed(seed, Drawn(torch.tensor(every), Stream(0).rows(torch.tensor(every))), UNIT)
        gap = (could - cases.info["line_ref"][i]).abs().flatten(1).amax(1)
        assert gap.min() < 1e-6


def _kind(entry: int) -> int:
    from assay.core.transforms import PARAMETERS

    for place, values in enumerate(PARAMETERS.values()):
        if entry < len(values):
            return place
        entry -= len(values)
    return len(KINDS)


def test_what_had_changed_before_the_move_is_carried() -> None:
    cases = seeds(200)
    x = cases.x.clone()
    x[:, 0, 0, 0] = 1.0  # one value of 100, by more than 0.2: with a limit of 10 there is room for the move
    made = mutated(cases.with_x(x), alpha=0.1)
    moved = made.info["line_affine"]
    assert 20 < moved.sum() < 200
    assert (made.info["line_l0"][moved] == 1).all()
    assert torch.allclose(made.info["line_linf"][moved], (x - cases.x)[moved].flatten(1).amax(1))
    assert not made.info["line_l0"][~moved].any()
    assert fits(made, alpha=0.1).all()


def test_a_used_up_count_leaves_nothing_but_small_changes_and_those_are_too_large() -> None:
    """Carried: one value fewer would have fitted."""
    cases = seeds(100)
    moved = torch.ones(100, dtype=torch.bool)
    carried = {"line_ref": cases.x, "line_affine": moved, "line_linf": torch.full((100,), 0.9)}
    for used, room in ((10, False), (8, True)):
        given = cases.note(**carried, line_l0=torch.full((100,), used))
        made = mutated(given, group="code", alpha=0.1)
        changed = (made.x != cases.x).flatten(1).any(1)
        assert bool(changed.any()) == room
        assert ((made.x - cases.x).abs() >= 1 / 510).flatten(1).sum(1).max() == (1 if room else 0)


def test_after_all_tries_a_case_stays_what_it_was() -> None:
    cases = seeds(30)
    made = mutated(cases, alpha=0.0, beta=0.0)
    assert torch.equal(made.x, cases.x)
    assert torch.equal(made.info["line_ref"], cases.x)
    assert not made.info["line_affine"].any()


def test_more_tries_change_more_rows_and_none_that_had_changed() -> None:
    cases = seeds(200)
    cases = cases.note(line_affine=torch.ones(200, dtype=torch.bool), line_ref=cases.x)
    few, many = (mutated(cases, tries=tries, beta=0.1) for tries in (1, 50))
    had, has = ((made.x != cases.x).flatten(1).any(1) for made in (few, many))
    assert 20 < had.sum() < 180
    assert has.sum() > had.sum()
    assert torch.equal(few.x[had], many.x[had])


def test_large_batches_try_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.stages.mutators import transform as module

    cases = seeds(60)
    cases = cases.note(line_affine=torch.ones(60, dtype=torch.bool), line_ref=cases.x)
    whole = mutated(cases, beta=0.05)
    monkeypatch.setattr(module, "MOST_NUMBERS", 1)
    assert torch.equal(mutated(cases, beta=0.05).x, whole.x)


def test_a_row_depends_on_itself_alone_and_inputs_are_left_alone() -> None:
    cases = mutated(seeds(20))
    before = {name: column.clone() for name, column in cases.info.items()} | {"x": cases.x.clone()}
    rng = Stream(7).rows(cases.origin)
    stage = bind("mutator", "transform", {})
    made = stage(bench(), cases, rng=rng)
    alone = stage(bench(), cases[slice(5, 6)], rng=rng[slice(5, 6)])
    assert torch.equal(made.x[5:6], alone.x)
    for name in ("line_ref", "line_affine", "line_l0", "line_linf"):
        assert torch.equal(made.info[name][5:6], alone.info[name])
    assert torch.equal(cases.x, before.pop("x"))
    assert all(torch.equal(cases.info[name], column) for name, column in before.items())


def test_no_cases_still_say_which_columns_there_are() -> None:
    made = mutated(seeds(0))
    assert {n: c.dtype for n, c in made.info.items() if n.startswith("line_")} == {
        "line_ref": torch.float32,
        "line_affine": torch.bool,
        "line_l0": torch.int64,
        "line_linf": torch.float32,
    }
    assert made.info["line_ref"].shape == (0, *SHAPE)


def test_nonsense_is_refused_before_anything_runs() -> None:
    for params, words in (
        ({"group": "papre"}, "group is paper or code"),
        ({"tries": 0}, "tries from 1 up"),
        ({"alpha": -1.0}, "not negative"),
    ):
        with pytest.raises(UsageError, match=words):
            mutated(seeds(0), **params)
    vector = Cases.of(torch.zeros(0, 100))
    with pytest.raises(UsageError, match="need images"):
        bind("mutator", "transform", {})(bench(shape=(100,)), vector, rng=Stream(0).rows(vector.origin))


def test_the_filter_at_its_edges() -> None:
    """100 values, alpha 0.02: one may become anything, two not, unless both stay below 0.2."""
    seed = torch.zeros(6, *SHAPE)
    x = seed.clone()
    x.view(6, -1)[1, :1] = 1.0
    x.view(6, -1)[2, :2] = 0.2
    x.view(6, -1)[3, :] = 0.19
    x.view(6, -1)[4, :1] = 1.0
    x.view(6, -1)[5, :] = 0.19
    bare = Cases.of(x).note(seed_x=seed)
    judge = bind("filter", "few_or_small", {})
    assert judge(bench(), bare).tolist() == [True, True, False, True, True, True]
    lines = bare.note(
        line_ref=torch.ones_like(x),
        line_affine=torch.zeros(6, dtype=torch.bool),
        line_l0=torch.tensor([0, 0, 0, 0, 1, 0]),
        line_linf=torch.tensor([0.0, 0.0, 0.0, 0.0, 0.5, 0.25]),
    )
    assert judge(bench(), lines).tolist() == [True, True, False, True, False, False], "carried is added, or the larger"
    elsewhere = lines.note(line_affine=torch.ones(6, dtype=torch.bool), line_l0=torch.zeros(6, dtype=torch.int64))
    assert not judge(bench(), elsewhere).any(), "a reference that has moved is what counts"
    assert judge(bench(), elsewhere.note(line_ref=x, line_linf=torch.zeros(6))).all()
    assert judge(bench(), lines[:0]).shape == (0,)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_lines_on_a_gpu_keep_the_rule() -> None:
    spec = InputSpec(SHAPE, UNIT, ("a", "b"))
    ground = Bench(ModuleTarget(nn.Sequential(nn.Flatten(), nn.Linear(100, 2)).cuda(), spec))
    cases = seeds(64).to("cuda")
    for step in range(6):
        cases = bind("mutator", "transform", {})(ground, cases, rng=Stream(step).rows(cases.origin))
        assert bind("filter", "few_or_small", {})(ground, cases).all()
        assert fits(cases.to("cpu")).all()
    assert cases.info["line_affine"].any()
