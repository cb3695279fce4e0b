"""Campaigns that learn: coverage, gains, the pool, siblings, and that all of it survives an end and a new start."""

import itertools
import signal
from pathlib import Path

import pytest
import torch
from torch import nn

from assay.core import store
from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.shards import decode
from assay.engines.fuzz import fuzz
from assay.engines.guidance import FOLDER
from assay.engines.lanes import Lanes
from assay.engines.select import select
from assay.outputs.report.build import report
from assay.subjects.bench import Data
from assay.subjects.data.load import load_data
from assay.subjects.observer import Observer
from assay.subjects.sources.load import load_target

POOLED = {"coverage": "kmnc(k=50)", "schedule": "pool(mutants=5)", "keep": "gains"}
CLIMBED = {"coverage": "nc(threshold=0.25)", "schedule": "queue(iters=3, reopen=true)", "keep": "gains"}


@pytest.fixture
def digits() -> Data:
    return load_data("digits/test[:40]")


def journal(run: Path) -> list[dict[str, object]]:
    """The lines of a run without what depends on the clock or on memory of another kind."""
    return [dict(line.meta) for line in store.read(run).commits("fuzz")]


def test_coverage_is_that_of_the_cases_tried(digits_model: str, digits: Data) -> None:
    """Counted anew from the outside: seeds and, with noise of no size, cases that equal them."""
    found = fuzz(
        "noise", digits_model, digits, run="a", eps=0.0, changes={"coverage": "nc(threshold=0.5, scaled=false)"}
    )
    target = load_target(digits_model)
    right = digits.cases.x[(target(digits.cases.x).argmax(1) == digits.cases.y)]
    active = (Observer.of([target], "auto")(right).neurons > 0.5).any(0)
    assert found.coverage is not None
    assert found.coverage["covered"] == int(active.sum())
    assert found.coverage["total"] == 268
    assert "268 neurons in 8 layers" in found.coverage["layers"]


def test_only_failures_count_where_the_recipe_says_so(digits_model: str, digits: Data) -> None:
    changes = {"coverage": "nc(threshold=0.5, scaled=false)", "counted": "failures"}
    found = fuzz("noise", digits_model, digits, run="a", eps=0.3, changes=changes)
    cases = found.load()
    active = (Observer.of([load_target(digits_model)], "auto")(cases.x).neurons > 0.5).any(0)
    assert found.coverage is not None
    assert found.coverage["covered"] == int(active.sum())
    assert fuzz("noise", digits_model, digits, run="b", eps=0.0, changes=changes).coverage["covered"] == 0  # type: ignore[index]


@pytest.mark.parametrize("changes", [POOLED, CLIMBED])
def test_a_run_in_two_sessions_is_the_run_in_one(changes: dict[str, str], digits_model: str, digits: Data) -> None:
    recipe = "noise" if changes is POOLED else "robot"
    told = {"eps": 0.3, "unit": 16, "deterministic": True, "changes": changes}
    whole = fuzz(recipe, digits_model, digits, run="whole", cases=2000, **told)  # type: ignore[arg-type]
    for budget in (300, 900, 2000):
        parts = fuzz(recipe, digits_model, digits, run="parts", cases=budget, **told)  # type: ignore[arg-type]
    assert whole.cases == parts.cases
    assert whole.coverage is not None
    if changes is POOLED:  # a budget may end inside a unit; what follows is then another unit
        assert parts.coverage is not None
        assert abs(whole.coverage["covered"] - parts.coverage["covered"]) < 0.1 * whole.coverage["covered"]
    else:
        assert whole.coverage == parts.coverage
        assert torch.equal(whole.load().x, parts.load().x)


def test_killed_between_units_nothing_is_lost(digits_model: str, digits: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a kill leaves it: the second file of the pair half written, the journal one line short."""
    told = {"eps": 0.3, "unit": 16, "changes": POOLED}
    alone = fuzz("noise", digits_model, digits, run="alone", cases=1200, **told)  # type: ignore[arg-type]

    class Killed(Exception):
        pass

    commit, calls = store.Store.commit, 0

    def cut_off(self: store.Store, files: dict[str, bytes], **meta: object) -> None:
        nonlocal calls
        calls += meta["kind"] == "fuzz"
        if calls == 4:
            raise Killed
        commit(self, files, **meta)

    monkeypatch.setattr(store.Store, "commit", cut_off)
    with pytest.raises(Killed):
        fuzz("noise", digits_model, digits, run="killed", cases=1200, **told)  # type: ignore[arg-type]
    monkeypatch.setattr(store.Store, "commit", commit)
    again = fuzz("noise", digits_model, digits, run="killed", cases=1200, **told)  # type: ignore[arg-type]
    assert again.coverage == alone.coverage
    assert again.stats["pool"] == alone.stats["pool"] > len(digits)
    assert journal(again.run) == journal(alone.run)


def test_lost_coverage_is_counted_anew_and_said(
    digits_model: str, digits: Data, caplog: pytest.LogCaptureFixture
) -> None:
    first = fuzz("noise", digits_model, digits, run="a", cases=300, eps=0.3, unit=16, changes=POOLED)
    for path in (first.run / FOLDER).iterdir():
        path.write_bytes(b"damaged")
    again = fuzz("noise", digits_model, digits, run="a", cases=600, eps=0.3, unit=16, changes=POOLED)
    assert "is lost" in caplog.text
    assert again.cases > first.cases
    assert again.coverage is not None
    assert again.coverage["covered"] > 0


def test_what_joins_the_pool_gained_and_does_not_fail(digits_model: str, digits: Data) -> None:
    found = fuzz("noise", digits_model, digits, run="a", cases=2000, eps=0.3, unit=16, changes=POOLED)
    run = store.read(found.run)
    files = [name for line in run.commits("fuzz") for name in line.files if name.startswith("state/pool-")]
    joined = [decode(run.file(name)) for name in files]
    x = torch.cat([part["x"] for part in joined])
    y = torch.cat([part["y"] for part in joined])
    assert len(x) == found.stats["pool"] - found.stats["seed_list"] > 10
    assert (load_target(digits_model)(x).argmax(1) == y).all()
    assert found.kept["gains"] >= len(x)


def test_children_of_one_parent_in_one_unit_differ(digits_model: str) -> None:
    one = load_data("digits/test[:1]")
    changes = {"schedule": "pool(mutants=4, pick=uniform)", "oracle": "wrong_label"}
    found = fuzz("noise", digits_model, one, run="a", cases=400, eps=0.9, unit=1, changes=changes)
    assert found.failures > 5
    assert len(found.load().x.flatten(1).unique(dim=0)) == found.failures


class Steps(nn.Module):
    """Two classes, parted where the mean of the input passes ``at``."""

    def __init__(self, at: float) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.tensor(at))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        level = x.mean(1, keepdim=True) - self.at
        return torch.cat([-level, level], 1)


LINE = InputSpec((2,), (0.0, 1.0), ("low", "high"))


def line() -> Data:
    x = torch.linspace(0.0, 1.0, 41)[:, None].repeat(1, 2)
    return Data("line", Cases.of(x, (x.mean(1) > 0.5).long()), LINE)


def test_siblings_disagree_where_their_classes_part() -> None:
    found = fuzz("noise", Steps(0.5), line(), run="a", eps=0.1, siblings=[Steps(0.6)], changes={"oracle": "disagree"})
    level = found.load().x.mean(1)
    assert found.failures > 3
    assert ((level > 0.5) & (level <= 0.6)).all()


def test_what_compares_models_says_what_it_lacks() -> None:
    with pytest.raises(UsageError, match="--with MODEL"):
        fuzz("noise", Steps(0.5), line(), run="a", eps=0.1, changes={"oracle": "disagree"})
    with pytest.raises(UsageError, match="itself"):
        fuzz("noise", Steps(0.5), line(), run="a", siblings=[Steps(0.5)])


def test_a_strategy_without_a_criterion_is_refused(digits_model: str, digits: Data) -> None:
    with pytest.raises(UsageError, match="criterion"):
        fuzz("noise", digits_model, digits, run="a", changes={"strategy": "uncovered"})
    with pytest.raises(UsageError, match="counted"):
        fuzz("noise", digits_model, digits, run="a", changes={"counted": "some"})


def test_a_budget_of_cases_covers_what_the_run_holds_and_no_more(digits_model: str, digits: Data) -> None:
    """Whole units are worked: a neuron of a case that was thrown away would be covered by nobody."""
    changes = {"coverage": "kmnc(k=1000)", "schedule": "pool(mutants=5)", "keep": "gains"}
    found = fuzz("noise", digits_model, digits, run="a", cases=60, eps=0.3, changes=changes)
    assert found.coverage is not None
    assert 60 <= found.cases <= 16 * 5
    assert found.coverage["covered"] - found.coverage["seeds"] <= found.cases * 268
    climbed = fuzz("robot", digits_model, digits, run="b", cases=50, changes={"coverage": "nc"})
    lines = [line.meta for line in store.read(climbed.run).commits("fuzz")]
    assert climbed.cases == sum(meta["counts"]["cases"] for meta in lines) >= 50
    assert [len(meta["rows"]) for meta in lines] == [16] * len(lines), "whole units, one at a time"


def test_an_interrupted_pool_ends_as_one_left_alone(
    digits_model: str, digits: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"eps": 0.3, "unit": 16, "lanes": 6, "changes": POOLED}
    alone = fuzz("noise", digits_model, digits, run="alone", **told)  # type: ignore[arg-type]
    steps, step = 0, Lanes.step

    def press(self: Lanes) -> bool:
        nonlocal steps
        steps += 1
        if steps == 8:  # in the middle of the first unit
            signal.raise_signal(signal.SIGTERM)
        return step(self)

    monkeypatch.setattr(Lanes, "step", press)
    assert fuzz("noise", digits_model, digits, run="cut", **told).interrupted  # type: ignore[arg-type]
    monkeypatch.setattr(Lanes, "step", step)
    again = fuzz("noise", digits_model, digits, run="cut", **told)  # type: ignore[arg-type]
    assert journal(again.run) == journal(alone.run)
    assert again.coverage == alone.coverage


def test_adapt_interrupted_before_its_first_commit_ends_as_one_left_alone(
    digits_model: str, digits: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = fuzz("adapt", digits_model, digits, run="alone", unit=16, deterministic=True)
    step = Lanes.step

    def press(self: Lanes) -> bool:
        signal.raise_signal(signal.SIGTERM)
        return step(self)

    monkeypatch.setattr(Lanes, "step", press)
    fuzz("adapt", digits_model, digits, run="cut", unit=16, deterministic=True)
    monkeypatch.setattr(Lanes, "step", step)
    again = fuzz("adapt", digits_model, digits, run="cut", unit=16, deterministic=True)
    assert torch.equal(again.load().x, alone.load().x)


def test_a_selection_between_commits_does_not_endanger_what_is_known(digits_model: str, digits: Data) -> None:
    told = {"eps": 0.3, "unit": 16, "changes": POOLED}
    for cases in (100, 300, 500, 700):
        found = fuzz("noise", digits_model, digits, run="a", cases=cases, **told)  # type: ignore[arg-type]
        select("a", by="random", k=1, seed=cases)
    files = [line.meta["guidance"]["file"] for line in store.read(found.run).commits("fuzz")]
    assert all(one != next_ for one, next_ in itertools.pairwise(files)), "never over what the last commit refers to"


def test_training_data_must_be_known_and_are_part_of_a_run(digits_model: str, digits: Data) -> None:
    own = Data("own", digits.cases, digits.spec)
    with pytest.raises(UsageError, match="--training"):
        fuzz("noise", digits_model, own, run="a", eps=0.3, changes=POOLED)
    first, second = load_data("digits/train[:500]"), load_data("digits/train[500:]")
    found = fuzz("noise", digits_model, own, run="a", eps=0.3, cases=100, training=first, changes=POOLED)
    assert found.coverage is not None
    assert found.coverage["training"] == first.name
    other = Data(first.name, second.cases, second.spec, first.source)
    with pytest.raises(UsageError, match="training_fingerprint"):
        fuzz("noise", digits_model, own, run="a", eps=0.3, cases=200, training=other, changes=POOLED)
    wide = Data("wide", Cases.of(torch.zeros(4, 3, 8, 8)), InputSpec((3, 8, 8), (0.0, 1.0), digits.spec.classes))
    with pytest.raises(UsageError, match="shape"):
        fuzz("noise", digits_model, own, run="b", eps=0.3, training=wide, changes=POOLED)


def test_the_recipe_that_ran_is_told(digits_model: str, digits: Data) -> None:
    assert fuzz("deepxplore", digits_model, digits[:16], run="a").to_json()["recipe"] == "deepxplore-alone"


def test_a_run_of_differing_models_says_who_is_wrong() -> None:
    found = fuzz("noise", Steps(0.5), line(), run="a", eps=0.1, siblings=[Steps(0.6)], changes={"oracle": "disagree"})
    cases = found.load()
    assert torch.equal(cases.info["others_pred"][:, 0], (cases.x.mean(1) > 0.6).long())
    assert found.wrong == int((cases.info["pred"] != cases.y).sum()) < found.failures
    page = report(found.run).read_text()
    assert "the target itself is wrong" in page
    assert "The target fails" not in page
    plain = fuzz("noise", Steps(0.5), line(), run="b", eps=0.1)
    assert plain.wrong == plain.failures
    assert "The target fails on" in report(plain.run).read_text()


def test_what_is_no_strategy_is_told_so(digits_model: str, digits: Data, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def pick():\n    return None\n")
    with pytest.raises(UsageError, match="must return an object with begin"):
        fuzz("dlfuzz", digits_model, digits, run="a", changes={"strategy": "mine.py:pick"})
    with pytest.raises(UsageError, match="must return an object with begin"):
        fuzz("dlfuzz", digits_model, digits, run="a", changes={"coverage": "mine.py:pick"})


def test_unlabelled_seeds_are_said_to_be(digits_model: str, digits: Data, caplog: pytest.LogCaptureFixture) -> None:
    bare = Data("bare", Cases.of(digits.cases.x), digits.spec)
    fuzz("noise", digits_model, bare, run="a", eps=0.1)
    assert "40 of 40 cases have no label" in caplog.text


def test_another_budget_does_not_change_the_size_of_units(digits_model: str, digits: Data) -> None:
    """A small budget makes small units in a new run; a run that is continued keeps those it has."""
    told = {"eps": 0.3, "changes": POOLED}
    timed = fuzz("noise", digits_model, digits, run="a", time=0.3, **told)  # type: ignore[arg-type]
    more = fuzz("noise", digits_model, digits, run="a", cases=timed.cases + 50, **told)  # type: ignore[arg-type]
    assert more.cases > timed.cases
    fuzz("noise", digits_model, digits, run="b", cases=60, **told)  # type: ignore[arg-type]
    assert store.read(fuzz("noise", digits_model, digits, run="b", cases=9000, **told).run).config["run"]["unit"] == 16  # type: ignore[arg-type]
