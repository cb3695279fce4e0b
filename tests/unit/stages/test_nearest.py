"""The choice among candidates by deep features, and the filter that reads what it measured."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.randomness import Rows, Stream
from assay.core.registry import bind
from assay.engines.fuzz import fuzz
from assay.stages.extractors import features_of
from assay.stages.extractors.similarity import cosine
from assay.stages.filters.similar import similar
from assay.stages.mutators.nearest import _sets_before, nearest
from assay.subjects.asked import Asked
from assay.subjects.bench import Bench
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target
from assay.subjects.sources.module import ModuleTarget

TOOLS = """
import torch

# Candidates 0 to 3, then 4 to 7, then again from the first.
TABLE = torch.tensor([[1.0, 1.0], [1.0, 0.5], [0.5, 0.0], [0.0, 1.0], [0.2, 0.1], [0.3, 0.0], [0.0, 0.5], [0.1, 0.2]])
SEEN = []


def listed(bench, cases, *, rng):
    SEEN.append(cases.info["candidate"].tolist())
    return TABLE[cases.info["candidate"] % len(TABLE)]


def stuck(bench, cases, *, rng):
    number = (cases.info["candidate"] % 4)[:, None]
    away = torch.tensor([1.0, 0.5])
    away = torch.where(number == 3, away.flip(0), away)
    return torch.where(number == 0, cases.x, away)


def marking(bench, cases, *, rng):
    x = TABLE[cases.info["candidate"] % len(TABLE)]
    return cases.with_x(x).note(line_mark=x.sum(1), line_cosine=x.new_full((len(x),), 7.0))


def plain(bench):
    return lambda x: x.flatten(1)


def never(bench):
    raise RuntimeError("made")
"""
SPEC = InputSpec((2,), (0.0, 1.0), ("a", "b"))


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    path = (
        tmp_path / "own_stages.py"
    )  # their folder joins the path: a module `tools` would win over our folder of that name
    path.write_text(TOOLS)
    return path


@pytest.fixture
def bench() -> Bench:
    return Bench(ModuleTarget(torch.nn.Linear(2, 2), SPEC))


def rows(n: int) -> Rows:
    return Stream(0).rows(torch.arange(n))


def at(x: list[list[float]], **info: Tensor) -> Cases:
    return Cases.of(torch.tensor(x)).note(**info)


def on(made: Cases, cases: Cases, step: int) -> Cases:
    """The lanes a step later, as the engine keeps them: what the mutator laid down stays, the case is the parent's."""
    lanes = {name: column for name, column in made.info.items() if name.startswith("lane_")}
    return cases.note(step=torch.full_like(cases.origin, step), **lanes)


def test_the_most_similar_come_first_and_one_a_step(tools: Path, bench: Bench) -> None:
    cases = at([[1.0, 0.0]], step=torch.tensor([0]))
    want = [([0.5, 0.0], 1.0), ([1.0, 0.5], 2 / 5**0.5), ([1.0, 1.0], 0.5**0.5)]  # of 4; unlike it is [0, 1]
    for step, (x, alike) in enumerate(want):
        made = nearest(bench, cases, rng=rows(1), of=f"{tools}:listed", candidates=4, top=3, features=f"{tools}:plain")
        assert made.x.tolist() == [x]
        assert made.info["line_cosine"].tolist() == pytest.approx([alike], abs=1e-6)
        assert made.info["line_cosine"].dtype == made.info["line_root"].dtype == torch.float32
        assert made.info["lane_x"].shape == (1, 3, 2)
        cases = on(made, at([[1.0, 0.0]]), step + 1)
    made = nearest(bench, cases, rng=rows(1), of=f"{tools}:listed", candidates=4, top=3, features=f"{tools}:plain")
    assert made.x.tolist() == [pytest.approx([0.3, 0.0])], "all were handed out: the next four are made"


def test_candidates_are_numbered_on_when_a_case_is_taken_again(tools: Path, bench: Bench) -> None:
    from assay.core.userfile import load_object

    seen = load_object(tools, "SEEN")
    cases = at([[1.0, 0.0]] * 3, taken=torch.tensor([0, 1, 2]), step=torch.tensor([0, 0, 4]))
    nearest(bench, cases, rng=rows(3), of=f"{tools}:listed", candidates=3, top=2, features=f"{tools}:plain")
    assert seen == [[0, 3, 12], [1, 4, 13], [2, 5, 14]]


def test_only_lanes_that_have_nothing_left_make_candidates(tools: Path, bench: Bench) -> None:
    from assay.core.userfile import load_object

    seen = load_object(tools, "SEEN")
    cases = at([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], step=torch.zeros(3, dtype=torch.int64))
    how = {"of": f"{tools}:listed", "candidates": 4, "top": 2, "features": f"{tools}:plain"}
    first = nearest(bench, cases, rng=rows(3), **how)  # type: ignore[arg-type]
    lanes = on(first, cases, 1).note(step=torch.tensor([1, 2, 1]))
    lanes = lanes.note(**{name: column.clone() for name, column in lanes.info.items()})
    for name in ("lane_x", "lane_cosine", "lane_root"):
        lanes.info[name][2] = 0  # a lane that holds nothing, whatever its step
    before = {name: column.clone() for name, column in lanes.info.items()}
    seen.clear()
    made = nearest(bench, lanes, rng=rows(3), **how)  # type: ignore[arg-type]
    assert seen == [[4, 0], [5, 1], [6, 2], [7, 3]], "the second row's next four, the third row's first"
    assert torch.equal(made.x[0], first.info["lane_x"][0, 1])
    assert torch.equal(made.info["lane_x"][0], first.info["lane_x"][0])
    assert made.x[1].tolist() == pytest.approx([0.0, 0.5])
    assert all(torch.equal(column, before[name]) for name, column in lanes.info.items()), "nothing given is written to"


def test_what_repeats_comes_last(tools: Path, bench: Bench) -> None:
    """Candidates 0 and 2 are the case itself and candidate 1 once more; 3 is unlike, and still before them."""
    cases = at([[1.0, 0.0]])
    made = nearest(bench, cases, rng=rows(1), of=f"{tools}:stuck", candidates=4, top=4, features=f"{tools}:plain")
    assert made.info["lane_x"][0].tolist() == [[1.0, 0.5], [0.5, 1.0], [1.0, 0.0], [1.0, 0.5]]
    assert made.info["lane_cosine"][0].tolist() == pytest.approx([2 / 5**0.5, 1 / 5**0.5, -1, -1], abs=1e-6)
    assert made.info["lane_root"][0].tolist() == pytest.approx([2 / 5**0.5, 1 / 5**0.5, -1, -1], abs=1e-6)


def test_the_root_is_measured_too(tools: Path, bench: Bench) -> None:
    cases = at([[1.0, 0.0], [1.0, 0.0]], seed_x=torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    made = nearest(bench, cases, rng=rows(2), of=f"{tools}:listed", candidates=4, top=4, features=f"{tools}:plain")
    assert made.info["lane_root"][0].tolist() == pytest.approx([0.0, 1 / 5**0.5, 0.5**0.5, 1.0], abs=1e-6)
    assert torch.equal(made.info["lane_root"][1], made.info["lane_cosine"][1])


def test_as_a_slow_and_obvious_search_does(bench: Bench, tools: Path) -> None:
    cases = Cases.of(torch.rand(6, 2, generator=torch.Generator().manual_seed(1)))
    cases = cases.note(seed_x=cases.x.roll(1, 0))
    made = nearest(bench, cases, rng=rows(6), of="noise(eps=0.4)", candidates=7, top=3, features=f"{tools}:plain")
    noise = bind("mutator", "noise", {"eps": 0.4})
    for i in range(6):
        one = cases[i : i + 1]
        tried = [noise(bench, one, rng=rows(6)[i : i + 1].at(k))[0] for k in range(7)]
        angle = torch.nn.functional.cosine_similarity
        ranked = sorted(tried, key=lambda x: -float(angle(x, one.x[0], dim=0)))[:3]
        assert torch.equal(made.info["lane_x"][i], torch.stack(ranked))
        assert torch.equal(made.x[i], ranked[0])
        assert float(made.info["line_cosine"][i]) == pytest.approx(float(angle(ranked[0], one.x[0], dim=0)), abs=1e-6)
        root = float(angle(ranked[0], one.info["seed_x"][0], dim=0))
        assert float(made.info["line_root"][i]) == pytest.approx(root, abs=1e-6)
        alone = nearest(
            bench, one, rng=rows(6)[i : i + 1], of="noise(eps=0.4)", candidates=7, top=3, features=f"{tools}:plain"
        )
        assert torch.equal(alone.x[0], made.x[i]), "a row of a batch is a batch of one"


def test_features_are_asked_for_in_chunks(tools: Path, bench: Bench) -> None:
    cases = Cases.of(torch.rand(5, 2, generator=torch.Generator().manual_seed(1)))
    how = {"of": "noise(eps=0.4)", "candidates": 3, "top": 2, "features": f"{tools}:plain"}
    whole = nearest(bench, cases, rng=rows(5), **how)  # type: ignore[arg-type]
    bench.chunks.size = 2
    parts = nearest(bench, cases, rng=rows(5), **how)  # type: ignore[arg-type]
    assert torch.equal(whole.info["lane_x"], parts.info["lane_x"])


def test_what_the_inner_mutator_hands_down_goes_with_its_candidate(tools: Path, bench: Bench) -> None:
    cases = at([[1.0, 0.0]], line_cosine=torch.tensor([0.3]))
    made = nearest(bench, cases, rng=rows(1), of=f"{tools}:marking", candidates=4, top=3, features=f"{tools}:plain")
    assert made.info["line_mark"].tolist() == [0.5]
    assert made.info["lane_line_mark"].tolist() == [[0.5, 1.5, 2.0]]
    assert made.info["line_cosine"].tolist() == pytest.approx([1.0]), "measured, whatever the mutator or parent says"


def test_no_cases_make_no_features_and_the_right_forms(tools: Path, bench: Bench) -> None:
    none = at([[1.0, 0.0]])[:0]
    made = nearest(bench, none, rng=rows(0), of="noise(eps=0.1)", candidates=4, top=3, features=f"{tools}:never")
    forms = {name: (tuple(column.shape), column.dtype) for name, column in made.info.items()}
    assert made.x.shape == (0, 2)
    assert forms == {
        "lane_x": ((0, 3, 2), torch.float32),
        "lane_cosine": ((0, 3), torch.float32),
        "lane_root": ((0, 3), torch.float32),
        "line_cosine": ((0,), torch.float32),
        "line_root": ((0,), torch.float32),
    }
    with pytest.raises(UsageError, match="never failed: RuntimeError: made"):
        nearest(bench, at([[1.0, 0.0]]), rng=rows(1), of="noise", candidates=4, top=3, features=f"{tools}:never")


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"top": 0}, "top from 1 up to candidates; got top=0, candidates=10"),
        ({"candidates": 4}, "top from 1 up to candidates; got top=5, candidates=4"),
        ({"of": "nose"}, "unknown mutator 'nose'; did you mean 'noise'"),
        ({"of": "noise(epz=1)"}, "mutator 'noise' has no parameter 'epz'"),
        ({"of": "attacked"}, "mutator 'attacked' needs eps"),
        ({"features": "referenz"}, "unknown extractor 'referenz'; did you mean 'reference'"),
        ({"features": "vgg19(lair=1)"}, "extractor 'vgg19' has no parameter 'lair'"),
    ],
)
def test_nonsense_is_refused_before_there_are_cases(params: dict[str, object], told: str, bench: Bench) -> None:
    how = {"of": "noise", **params}
    with pytest.raises(UsageError, match=told.replace("(", r"\(")):
        nearest(bench, at([[1.0, 0.0]])[:0], rng=rows(0), **how)  # type: ignore[arg-type]


def test_an_inner_mutator_that_the_target_cannot_serve_is_refused(bench: Bench) -> None:
    closed = Bench(Asked(bench.target))
    with pytest.raises(UsageError, match="mutator 'ascend' needs grad, this target gives"):
        nearest(closed, at([[1.0, 0.0]])[:0], rng=rows(0), of="ascend")


def test_cases_stay_with_the_extractor_of_their_text(tools: Path, bench: Bench) -> None:
    assert features_of(bench, f"{tools}:plain") is features_of(bench, f"{tools}:plain")


def test_what_a_campaign_stores_has_the_similarities_it_says(digits_model: str) -> None:
    text = f"reference(model={digits_model})"
    changes = {"mutate": f"nearest(of=noise(eps=0.4), candidates=6, top=3, features={text})"}
    run = fuzz("cagfuzz", digits_model, "digits", cases=6000, changes=changes)
    found, data = run.load(), load_data("digits/train")
    features = features_of(Bench(load_target(digits_model, data=data)), text)
    assert len(found) > 20
    assert found.info["line_cosine"].min() > 0.9
    alike = cosine(features(found.x), features(found.info["seed_x"]))
    assert torch.allclose(alike, found.info["line_root"], atol=1e-5)
    assert not torch.equal(found.info["line_root"], found.info["line_cosine"]), "some were made of what joined the pool"


def test_similar_is_above_and_not_at_the_level(bench: Bench) -> None:
    cases = at(
        [[1.0, 0.0]] * 4,
        line_cosine=torch.tensor([0.9, 0.91, -1.0, 1.0]),
        line_root=torch.tensor([1.0, 0.89, -1.0, 0.95]),
    )
    assert similar(bench, cases, least=0.9).tolist() == [False, True, False, True]
    assert similar(bench, cases, least=0.9, of="root").tolist() == [True, False, False, True]
    assert similar(bench, cases, least=-1).tolist() == [True, True, False, True]


def test_similar_refuses_what_nobody_measured_and_what_is_no_cosine(bench: Bench) -> None:
    with pytest.raises(UsageError, match="this mutator measures none; put it inside nearest"):
        similar(bench, at([[1.0, 0.0]]))
    for least in (1.0, -1.5, float("nan")):
        with pytest.raises(UsageError, match="least is a cosine, from -1 and below 1"):
            similar(bench, at([[1.0, 0.0]], line_cosine=torch.ones(1)), least=least)
    with pytest.raises(UsageError, match="of is one of parent, root; got 'seed'"):
        similar(bench, at([[1.0, 0.0]]), of="seed")


@pytest.mark.parametrize(("mutants", "top"), [(5, 3), (10, 5), (5, 5), (2, 5)])
def test_a_parent_taken_again_meets_candidates_that_are_new_to_it(mutants: int, top: int) -> None:
    """Sets of candidates are counted, not takings, whatever ``mutants`` is beside ``top``."""
    x, none = Cases.of(torch.rand(2, 1, 6, 6)), torch.zeros(2, dtype=torch.int64)
    seen = []
    for taken in range(4):
        before = _sets_before(x.note(taken=none + taken, tried=none + taken * mutants), top)
        seen += [int(before[0]) + done // top for done in range(0, mutants, top)]
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("control", ["noise", "fgsm"])
def test_a_control_is_as_far_away_as_the_mutator_it_stands_for(control: str, bench: Bench, tools: Path) -> None:
    cases, plain = at([[0.5, 0.5], [0.4, 0.6], [0.5, 0.3]]), f"{tools}:plain"
    cases = replace(cases, y=torch.tensor([0, 1, 0]))

    def made(control: str) -> Tensor:
        return nearest(
            bench, cases, rng=rows(3), of=f"{tools}:listed", candidates=1, top=1, features=plain, control=control
        ).x

    # Its first candidate is the corner (1, 1): both are as long as the way there, or end at a bound.
    lengths = [(x - cases.x).norm(dim=1) for x in (made(""), made(control))]
    assert bool((lengths[1] <= lengths[0] + 1e-5).all())
    assert torch.allclose(lengths[0], torch.tensor([0.7071, 0.7211, 0.8602]), atol=1e-4)
    inside = (made(control) > 0).all(1) & (made(control) < 1).all(1)
    assert torch.allclose(lengths[1][inside], lengths[0][inside], rtol=1e-4)
    assert not torch.allclose(made(""), made(control), atol=1e-3)
    with pytest.raises(UsageError, match="control is noise or fgsm"):
        made("luck")
