"""What every registered stage must keep, run over the registry."""

import inspect
from typing import Any

import pytest
import torch
from torch import nn

from assay.core.cases import Cases, InputSpec
from assay.core.entries import FOLDERS
from assay.core.errors import UsageError
from assay.core.losses import cross_entropy
from assay.core.randomness import Stream
from assay.core.registry import ENGINE_ARGUMENTS, Bound, bind, entries, lookup, names
from assay.recipes.recipe import Recipe, hardening, resolve
from assay.recipes.suite import Suite, parts_of
from assay.stages.trainers.watch import Unwatched
from assay.subjects.bench import Bench, Data, Splits
from assay.subjects.observer import COLUMNS, Observer
from assay.subjects.sources.module import ModuleTarget

SHAPE = (1, 6, 6)
SPEC = InputSpec(SHAPE, (0.0, 1.0), ("a", "b", "c"))


def net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))


def bench() -> Bench:
    """A target with all that a campaign may give a stage: other models, an observer, coverage, levels, training."""
    target, *others = (ModuleTarget(net(seed), SPEC) for seed in (0, 7, 8))
    observer = Observer.of([target, *others], "auto", ends=True)
    coverage = bind("criterion", "nc", {})().begin(observer, None)
    kept = {"coverage": coverage, "levels": {"ssim": 0.05, "tenengrad": 60.0, "close": 0.7}}
    roles = dict(zip(("sibling1", "vulnerable"), others, strict=True))
    return Bench(target, roles, observer=observer, training=splits().train, kept=kept)


def some_cases(n: int = 10) -> Cases:
    rng = torch.Generator().manual_seed(n)
    cases = Cases.of(torch.rand(n, *SHAPE, generator=rng), torch.randint(3, (n,), generator=rng))
    return cases.note(step=torch.arange(n), hits=torch.zeros(n, dtype=torch.int64))


def pushing(cases: Cases) -> Cases:
    """The cases with neurons that a strategy chose: two of the logits, which are never flat."""
    return cases.note(pushed=torch.tensor([[16, 17]]).repeat(len(cases), 1), signs=torch.ones(len(cases), 2))


def bound(kind: str, name: str) -> Bound:
    return bind(kind, name, {}, {"eps": 0.1, "norm": "linf"})


@pytest.mark.parametrize("kind", FOLDERS)
def test_every_entry_says_what_it_is(kind: str) -> None:
    assert entries(kind), f"nothing of kind {kind}"
    for entry in entries(kind):
        assert entry.summary.endswith("."), f"{kind} {entry.name}: the summary is one sentence"
        for parameter in entry.parameters:
            assert parameter.type, f"{kind} {entry.name}: parameter {parameter.name} has no type"


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k in FOLDERS for n in names(k) if k not in ("recipe", "suite")])
def test_stages_are_plain_functions_with_named_parameters(kind: str, name: str) -> None:
    function = lookup(kind, name)[1]
    kinds = {p.kind for p in inspect.signature(function).parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds
    assert inspect.Parameter.VAR_POSITIONAL not in kinds


# Mutators that are made of others, or fit something, in a size for these few.
SMALL: dict[str, dict[str, Any]] = {
    "fgsm_as": {"of": "noise"},
    "noise_as": {"of": "noise"},
    "nearest": {"of": "noise", "candidates": 3, "top": 2, "features": "reference(model=mlp, epochs=1, steps=0)"},
}


LARGER = {"cyclegan"}  # takes images of 8×8 and more: the same is asked of it in test_aeg.py


@pytest.mark.parametrize("name", sorted({*names("mutator")} - LARGER))
@pytest.mark.parametrize("n", [0, 1, 10])
def test_mutators(name: str, n: int) -> None:
    stage = bind("mutator", name, SMALL.get(name, {}), {"eps": 0.1, "norm": "linf"})
    ground, cases = bench(), looked_at(n)
    cases = cases.note(seed_x=cases.x)  # some stay near the seed, and make nothing of a case far from it
    before = cases.x.clone()
    rng = Stream(0).rows(cases.origin)
    made = made_x(stage(ground, cases, rng=rng))
    assert made.shape == cases.x.shape
    assert torch.equal(cases.x, before)
    assert torch.equal(made, made_x(stage(ground, cases, rng=rng)))
    if n:
        assert made.min() >= 0
        assert made.max() <= 1
        assert not torch.equal(made, cases.x)
        alone = made_x(stage(ground, cases[slice(0, 1)], rng=rng[slice(0, 1)]))
        assert torch.allclose(made[:1], alone, atol=1e-5)


def made_x(made: Any) -> Any:
    """The inputs a mutator made; one that hands columns down gives cases."""
    return made.x if isinstance(made, Cases) else made


def looked_at(n: int = 10) -> Cases:
    """Cases as the fuzzing engine hands them to judges: with their seed, where they came from, scores and best ones."""
    cases, rng = some_cases(n), torch.Generator().manual_seed(n + 1)
    return cases.note(
        seed_x=torch.rand(n, *SHAPE, generator=rng),
        before_x=torch.rand(n, *SHAPE, generator=rng),
        fol=torch.rand(n, generator=rng),
        best_fol=torch.rand(n, generator=rng),
        slope=torch.rand(n, *SHAPE, generator=rng),
        opening=torch.zeros(n, dtype=torch.bool),
        gain=torch.arange(n) % 2,
        row=torch.arange(n),
        mined=torch.randint(3, (n,), generator=rng),
        start_x=torch.rand(n, *SHAPE, generator=rng),
        line_cosine=torch.rand(n, generator=rng),
        line_root=torch.rand(n, generator=rng),
        active=torch.rand(n, generator=rng),
        parent_active=torch.rand(n, generator=rng),
    )


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k in ("oracle", "filter") for n in names(k)])
@pytest.mark.parametrize("n", [0, 10])
def test_judges(kind: str, name: str, n: int) -> None:
    judge, cases = bound(kind, name), looked_at(n)
    verdict = judge(bench(), cases)
    assert verdict.shape == (n,)
    assert verdict.dtype == torch.bool
    if n:
        assert torch.equal(verdict[3:4], judge(bench(), cases[slice(3, 4)]))


@pytest.mark.parametrize("name", names("schedule"))
@pytest.mark.parametrize("n", [0, 10])
def test_schedules_end_every_lane_and_store_failures_only(name: str, n: int) -> None:
    schedule = bound("schedule", name)()
    lanes = schedule.start(looked_at(n).note(step=torch.zeros(n, dtype=torch.int64)))
    alive = torch.ones(n, dtype=torch.bool)
    rng = torch.Generator().manual_seed(0)
    turns = 0
    while bool(alive.any()) and turns < 2000:
        turns += 1
        made = lanes.with_x(torch.rand(n, *SHAPE, generator=rng))
        failing = torch.rand(n, generator=rng) < 0.05
        lanes = lanes.note(step=lanes.info["step"] + 1)
        after = schedule.next(lanes, made, torch.ones(n, dtype=torch.bool), failing)
        assert not (after.stored & ~failing).any()
        assert after.ended.shape == (n,)
        lanes, alive = after.lanes, alive & ~after.ended
    assert not alive.any(), "a schedule must end every seed, whatever is kept"


@pytest.mark.parametrize("name", names("seeder"))
def test_seeders_choose_among_the_cases(name: str) -> None:
    cases = some_cases(20)
    chosen = bound("seeder", name)(bench(), cases, rng=Stream(0))
    assert 0 < len(chosen) <= 20
    assert torch.equal(chosen.parent, cases.x[chosen.origin])
    assert torch.equal(chosen.y, cases.y[chosen.origin])
    assert torch.equal(chosen.info["step"], cases.info["step"][chosen.origin]), "columns stay"
    again = bound("seeder", name)(bench(), cases, rng=Stream(0))
    assert torch.equal(chosen.x, again.x)


@pytest.mark.parametrize("name", names("seeder"))
def test_of_no_cases_no_seeds(name: str) -> None:
    chosen = bound("seeder", name)(bench(), some_cases(0), rng=Stream(0))
    assert chosen.x.shape == (0, *SHAPE)
    assert chosen.y.dtype == chosen.origin.dtype == torch.int64


@pytest.mark.parametrize("name", names("score"))
@pytest.mark.parametrize("n", [0, 1, 10])
def test_scores_are_one_number_a_case(name: str, n: int) -> None:
    stage, ground, cases = bound("score", name), bench(), pushing(some_cases(n))
    before = cases.x.clone()
    values = stage(ground, cases)
    assert values.shape == (n,)
    assert values.dtype == cases.x.dtype
    assert values.isfinite().all()
    assert not values.requires_grad
    assert torch.equal(cases.x, before)
    assert torch.equal(values, stage(ground, cases))
    if n:
        assert torch.allclose(values[:1], stage(ground, cases[slice(0, 1)]), rtol=1e-4, atol=1e-6)


COUNTED = {"active", "mc_dropout"}  # scores that count have no slope


@pytest.mark.parametrize("name", sorted({*names("score")} - COUNTED))
def test_scores_can_be_climbed(name: str) -> None:
    """With the columns attached to the graph of x, as an engine hands them over, a small step along the slope pays."""
    stage, ground, cases = bound("score", name), bench(), pushing(some_cases())
    x = cases.x.clone().requires_grad_()
    assert ground.observer is not None
    seen = {column: getattr(ground.observer(x), column) for column in COLUMNS}
    slope = torch.autograd.grad(cross_entropy(seen["logits"], cases.y).sum(), x, create_graph=True)[0]
    values = stage(ground, cases.with_x(x).note(gradient=slope, **seen))
    assert torch.allclose(values.detach(), stage(ground, cases), rtol=1e-4, atol=1e-6)
    (way,) = torch.autograd.grad(values.sum(), x)
    assert way.isfinite().all()
    assert (way.flatten(1).abs().amax(1) > 0).all()
    # With the seed held where it was: a step of a case is not one of its seed.
    moved = cases.with_x(cases.x + 1e-3 * way / way.flatten(1).norm(dim=1).view(-1, 1, 1, 1)).note(seed_x=cases.x)
    assert stage(ground, moved).sum() > values.sum()


# Selectors that begin with inputs of their own, in a size for these few.
STARTING: dict[str, dict[str, Any]] = {
    "lbt": {"net": "mlp", "start": 40, "check": 80, "rounds": 1, "mutants": 6},
    "metasel": {"net": "mlp", "start": 40, "check": 80, "rounds": 1, "labelled": 100},
}


@pytest.mark.parametrize("name", names("selector"))
@pytest.mark.parametrize("k", [0, 7, 50])
@pytest.mark.parametrize("n", [0, 1, 20])
def test_selectors_give_k_distinct_rows(name: str, k: int, n: int) -> None:
    cases = some_cases(n)
    before = cases.x.clone()
    select = bind("selector", name, STARTING.get(name, {}), {"eps": 0.1, "norm": "linf"})

    def given() -> Bench:
        if "start" not in select.entry.needs:
            return bench()
        line = nn.Linear(36, 3)
        with torch.no_grad():
            line.weight.copy_(torch.randn(3, 36, generator=torch.Generator().manual_seed(0)))
            line.bias.copy_(-line.weight.sum(1) / 2)  # grey is of no class: the net above gives one class to all noise
        target = ModuleTarget(nn.Sequential(nn.Flatten(), line), SPEC)
        return Bench(target, training=Data("made/train", some_cases(400).drop("step", "hits"), SPEC))

    rows = select(given(), cases, k, rng=Stream(3))
    assert rows.shape == (min(k, n),)
    assert rows.dtype == torch.int64
    assert len(rows.unique()) == len(rows)
    assert set(rows.tolist()) <= set(range(n))
    assert torch.equal(cases.x, before)
    assert torch.equal(rows, select(given(), cases, k, rng=Stream(3)))


def splits() -> Splits:
    cases = some_cases(48).drop("step", "hits")
    return Splits("made", *(Data(f"made/{p}", cases, SPEC) for p in ("train", "val", "test")))


@pytest.mark.parametrize("name", names("trainer"))
def test_trainers_leave_the_module_alone_and_learn(name: str) -> None:
    module = net()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    stage = bind("trainer", name, {"epochs": 2, "batch": 16}, {"eps": 0.05})
    extra = None if "history" in stage.entry.needs else some_cases(8).drop("step", "hits")  # such learn from no cases
    made = stage(module, splits(), extra, rng=Stream(0), watch=Unwatched())
    assert made is not module
    for key, value in module.state_dict().items():
        assert torch.equal(value, before[key])
    assert any(not torch.equal(v, before[k]) for k, v in made.state_dict().items())
    again = stage(module, splits(), extra, rng=Stream(0), watch=Unwatched())
    for key, value in made.state_dict().items():
        assert torch.equal(value, again.state_dict()[key]), "the same seed must give the same weights"


@pytest.mark.parametrize("name", names("recipe"))
def test_recipes_resolve(name: str) -> None:
    recipe: Any = lookup("recipe", name)[1]
    assert isinstance(recipe, Recipe)
    assert all(isinstance(text, str) for text in hardening(name, {}, {"eps": 0.1}).config().values())
    if not recipe.mutate:
        with pytest.raises(UsageError, match=f"recipe {name} finds no cases, it trains: assay harden"):
            resolve(name, {}, {"eps": 0.1})
        return
    stages = resolve(name, {}, {"eps": 0.1})
    assert stages.name == name
    told = stages.config()
    again = resolve(name, {field: text for field, text in told.items() if field != "name"}, {})
    assert again.config() == told, "what a run writes down gives the same stages again"


@pytest.mark.parametrize("name", names("suite"))
def test_suites_resolve(name: str) -> None:
    suite: Any = lookup("suite", name)[1]
    assert isinstance(suite, Suite)
    parts = parts_of(name, {"eps": 0.1, "norm": "linf"}, trained=("fgsm",))
    (attacks,) = parts.values()
    if suite.relative:
        assert ("fgsm" in attacks) == (name == "seen")
    else:
        assert len(attacks) == len(suite.attacks)


def test_engines_fill_in_what_users_cannot() -> None:
    assert set(ENGINE_ARGUMENTS) == {"rng", "watch"}
