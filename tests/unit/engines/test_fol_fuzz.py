"""FOL-Fuzz through the engine: what it stores, how it ends, that nothing depends on its company."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from assay.core import store
from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.engines import fuzz as fuzz_engine
from assay.engines import lanes
from assay.engines.found import Found
from assay.engines.fuzz import fuzz
from assay.engines.guidance import Guidance
from assay.engines.lanes import Lanes
from assay.engines.rehearsal import rehearsed
from assay.recipes.recipe import resolve
from assay.stages.objective import Look
from assay.subjects.bench import Bench, Data
from assay.subjects.data.load import load_data
from assay.subjects.sources.folded import folded
from assay.subjects.sources.load import load_target, module_of
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import Target


@pytest.fixture(scope="module")
def digits() -> Data:
    return load_data("digits/train[:150]")


@pytest.fixture
def foreground() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def shards(found: Found) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted((found.run / "cases").glob("*"))}


def relative(found: Found) -> torch.Tensor:
    cases = found.load()
    away = (cases.x - cases.info["seed_x"]).flatten(1).norm(dim=1)
    share: torch.Tensor = away / cases.info["seed_x"].flatten(1).norm(dim=1)
    return share


@pytest.mark.parametrize("recipe", ["robot", "robot-code"])
def test_what_is_stored_fails_and_every_queue_ends(recipe: str, digits_model: str, digits: Data) -> None:
    """Acceptance check 4 of the specification."""
    found = fuzz(recipe, digits_model, digits, run="a")
    cases, target = found.load(), load_target(digits_model)
    assert found.complete
    assert found.failures > 10
    predicted = target(cases.x).argmax(1)
    assert (predicted != cases.y).all()
    assert torch.equal(predicted, cases.info["pred"])
    assert torch.equal(cases.y, digits.cases.y[cases.origin])
    assert cases.x.min() >= 0
    assert cases.x.max() <= 1
    if recipe == "robot":
        assert (relative(found) <= 0.5 + 1e-6).all()
    score = bind("score", "fol", {}, {})
    assert torch.allclose(cases.info["fol"], score(Bench(target), cases), rtol=1e-3, atol=1e-5)
    assert found.gradient_steps == found.cases > found.failures
    assert found.kept["rises"] > 0
    assert found.seeds == store.read(found.run).lines[1].meta["seeds"]


def test_it_breaks_more_seeds_than_noise_of_the_same_reach_and_number(digits_model: str, digits: Data) -> None:
    guided = fuzz("robot", digits_model, digits, run="a", changes={"valid.within.relative": 0.3})
    control = fuzz("noise", digits_model, digits, run="b", eps=0.27, changes={"schedule.steps": 30})
    assert relative(guided).max() <= 0.3 + 1e-6
    assert relative(control).median() > 0.25, "the noise reaches as far"
    assert guided.cases < control.cases
    assert guided.broken > 1.5 * control.broken


def test_failures_of_a_seed_keep_apart(digits_model: str, digits: Data) -> None:
    found = fuzz("robot", digits_model, digits, run="a")
    cases = found.load()
    for origin in cases.origin.unique()[:40].tolist():
        mine = cases[cases.origin == origin]
        length = mine.info["seed_x"][0].norm()
        gaps = torch.pdist(mine.x.flatten(1)) / length
        assert (gaps > 0.05 - 1e-6).all()
        assert len(mine) <= 10
    free = fuzz("robot", digits_model, digits, run="b", changes={"schedule.apart": 0.0, "schedule.cases": 1000})
    assert free.failures > 2 * found.failures, "near-copies are most of what it meets"
    assert free.broken == found.broken


def test_a_strict_ball_is_kept(digits_model: str, digits: Data) -> None:
    found = fuzz("robot", digits_model, digits, run="a", eps=0.15, norm="linf")
    assert found.failures > 5
    cases = found.load()
    assert ((cases.x - cases.info["seed_x"]).abs().flatten(1).amax(1) <= 0.15 + 1e-6).all()
    score = bind("score", "fol", {"norm": "linf", "eps": 0.15}, {})
    again = score(Bench(load_target(digits_model)), cases)
    assert torch.allclose(cases.info["fol"], again, rtol=1e-3, atol=1e-5), "with a ball, FOL is that of the ball"


def test_lanes_do_not_change_what_a_seed_gives(digits_model: str, digits: Data) -> None:
    one = fuzz("robot", digits_model, digits[:60], run="one", unit=16, lanes=16, curvature="double")
    mine = one.load()
    for width in (1, 13, 400):
        other = fuzz("robot", digits_model, digits[:60], run=f"on{width}", unit=16, lanes=width, curvature="double")
        theirs = other.load()
        assert one.cases == other.cases, width
        assert torch.equal(mine.origin, theirs.origin), width
        assert torch.allclose(mine.x, theirs.x, atol=1e-4), width


@pytest.mark.usefixtures("foreground")
def test_an_interrupted_run_ends_as_an_undisturbed_one(digits_model: str, digits: Data) -> None:
    calls = 0

    def press(numbers: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 60:
            signal.raise_signal(signal.SIGINT)

    settings: dict[str, Any] = {"unit": 16, "lanes": 16, "deterministic": True}
    stopped = fuzz("robot", digits_model, digits[:60], run="a", progress=press, **settings)
    assert stopped.interrupted
    resumed = fuzz("robot", digits_model, digits[:60], run="a", **settings)
    alone = fuzz("robot", digits_model, digits[:60], run="b", **settings)
    assert torch.equal(resumed.load().x, alone.load().x)
    assert resumed.cases == alone.cases


def test_deterministic_runs_give_the_same_bytes(digits_model: str, digits: Data) -> None:
    a, b = (fuzz("robot", digits_model, digits[:40], run=name, deterministic=True) for name in "ab")
    assert shards(a) == shards(b)


def test_the_way_of_differentiating_is_chosen_once_and_kept(digits_model: str, digits: Data) -> None:
    found = fuzz("robot", digits_model, digits[:40], run="a", curvature="forward", cases=100)
    (line,) = store.read(found.run).commits("look")
    assert line.meta["curvature"] == "forward"
    fuzz("robot", digits_model, digits[:40], run="a", curvature="auto", cases=400)
    assert len(list(store.read(found.run).commits("look"))) == 1
    timed = fuzz("robot", digits_model, digits[:40], run="b")
    (line,) = store.read(timed.run).commits("look")
    assert set(line.meta["milliseconds"]) == {"double", "forward", "linear"}


def test_how_often_each_rule_fired_is_told(digits_model: str, digits: Data) -> None:
    found = fuzz("robot", digits_model, digits[:40], run="a", changes={"keep.below.level": 0.05})
    assert found.kept["below"] > 0
    assert json.loads((found.run / "stats.json").read_text())["kept"] == found.kept
    none = fuzz("robot", digits_model, digits[:40], run="b")
    assert none.kept["below"] == 0


def test_a_weight_of_the_objective_changes_what_is_found(digits_model: str, digits: Data) -> None:
    plain = fuzz("robot", digits_model, digits[:40], run="a")
    flat = fuzz("robot", digits_model, digits[:40], run="b", changes={"objective.fol": 0.0})
    assert plain.cases != flat.cases
    assert "0 * fol" in " ".join(store.read(flat.run).config["recipe"]["objective"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective.speed": 1}, "objective has no member 'speed'"),
        ({"keep.rises.slowly": True}, "filter 'rises' has no parameter 'slowly'"),
        ({"valid": "nearby"}, "unknown filter 'nearby'"),
        ({"objective": ()}, "climbs an objective, and there is none"),
        ({"schedule.depth": 0}, "depth must be at least 1"),
        ({"stage": 1}, "a recipe has no stage 'stage'"),
    ],
)
def test_changes_that_cannot_work_are_refused_before_a_run_exists(
    changes: dict[str, Any], message: str, digits_model: str, digits: Data
) -> None:
    with pytest.raises(UsageError, match=message):
        fuzz("robot", digits_model, digits, run="a", changes=changes)
    assert not (store.runs_root() / "a").exists()


def test_batch_normalisation_is_folded_for_the_search_and_the_net_comes_back(
    digits: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)
    ).train()
    for x in digits.cases.x.split(50):
        net(x)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    seen: list[bool] = []

    def watched(target: Target, sample: torch.Tensor) -> Target:
        made = folded(target, sample)
        seen.append(any(isinstance(m, nn.BatchNorm2d) for m in module_of(made).modules()))
        return made

    monkeypatch.setattr(fuzz_engine, "folded", watched)
    found = fuzz("robot", net, Data("own", digits.cases, digits.spec), run="a", changes={"seeds": "all"})
    assert found.cases > 0
    assert seen == [False], "the search works on a net without the layer"
    assert net.training
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_when_the_time_is_up_seeds_under_way_count_as_worked(digits_model: str, digits: Data) -> None:
    """Otherwise a short run would throw away most of what it did."""
    found = fuzz("robot", digits_model, digits, run="a", time=0.5, changes={"schedule.steps": 100_000})
    lines = list(store.read(found.run).commits("fuzz"))
    assert found.complete
    assert found.seeds >= len(digits.cases.x) * 0.9
    assert found.cases > 0
    rows = [row for line in lines for row in line.meta["rows"]]
    longer = found.seconds + 1.0  # a busy machine ends late
    more = fuzz("robot", digits_model, digits, run="a", time=longer, changes={"schedule.steps": 100_000})
    assert more.cases > found.cases
    assert len(rows) == found.seeds


def test_large_inputs_get_fewer_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (InputSpec((3, side, side), (0.0, 1.0), ("a", "b")) for side in (32, 224))
    stages = resolve("robot", {}, {})
    widths = []
    for spec in (small, large):
        target = ModuleTarget(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2)), spec)
        nothing = Data("nothing", Cases.of(torch.zeros(1, *spec.shape)), spec)
        each = rehearsed(target, (), stages, nothing).lane_bytes
        widths.append(fuzz_engine._width("auto", target, each))
    assert widths[0] == 256
    assert 16 < widths[1] < 256, "a lane of 224×224 images keeps about 10 MiB"
    assert fuzz_engine._width(300, target, each) == 300, "who asks for more gets it"


def test_a_ball_without_a_norm_is_one_of_linf(digits_model: str, digits: Data) -> None:
    found = fuzz("robot", digits_model, digits[:20], run="a", eps=0.1)
    told = store.read(found.run).config["recipe"]
    assert "norm=linf" in told["mutate"]
    assert all("eps=0.1" in text and "norm=linf" in text for text in (told["score"][0], told["objective"][2]))
    free = fuzz("robot", digits_model, digits[:20], run="b")
    assert "norm=l2" in store.read(free.run).config["recipe"]["score"][0]


def test_the_first_step_climbs_the_rivals_of_the_seed(digits_model: str, digits: Data) -> None:
    """The look that opens a lane ranks the classes by its own answer: nothing was known of the seed before."""
    target = load_target(digits_model)
    stages = resolve("robot", {"objective": "rivals(k=3)"}, {})
    look = Look(stages.objective, stages.weights, stages.score)
    engine = Lanes(
        Bench(target),
        stages,
        stages.schedule(),
        look,
        digits.cases,
        Stream(0),
        iter(()),
        Guidance(),
        width=1,
        open_units=1,
    )
    fresh = engine.at(digits.cases)
    seen = look(Bench(target), fresh).info["slope"]
    right = look(Bench(target), fresh.drop("seed_logits", "opening").note(seed_logits=target(fresh.x))).info["slope"]
    assert torch.allclose(seen, right, atol=1e-6)
    assert seen.abs().max() > 0


def test_a_score_below_zero_can_rise(tmp_path: Path, digits_model: str, digits: Data) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from assay.core.losses import log_odds\n"
        "def ease(bench, cases):\n    'Below 0 where it is right.'\n    return log_odds(bench.logits(cases), cases.y)\n"
    )
    changes = {"objective": f"{file}:ease", "score": f"{file}:ease", "keep": "rises(score=ease)"}
    found = fuzz("robot", digits_model, digits[:40], run="a", changes=changes)
    assert found.kept["rises"] > 40


def test_another_way_of_differentiating_is_refused_early_or_said_to_be_ignored(
    digits_model: str, digits: Data, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UsageError, match="curvature is auto"):
        fuzz("robot", digits_model, digits[:20], run="a", curvature="quick")
    assert not (store.runs_root() / "a").exists()
    fuzz("robot", digits_model, digits[:20], run="a", curvature="double", cases=50)
    fuzz("robot", digits_model, digits[:20], run="a", curvature="forward", cases=100)
    assert "goes on with curvature double" in caplog.text


def test_the_two_recipes_are_those_of_the_specification() -> None:
    """The table "Public code versus paper" of the specification, line by line."""
    paper, code = (resolve(name, {}, {}) for name in ("robot", "robot-code"))
    assert (paper.schedule.params["iters"], code.schedule.params["iters"]) == (3, 2)
    assert paper.weights == {"rivals": 1.0, "true_prob": -1.0, "fol": 1.0}
    assert paper.objective["rivals"].params["k"] == 5
    assert code.weights == {"true_prob": -1.0, "fol": 1.0}
    assert (paper.mutate.params["lr"], code.mutate.params["lr"]) == (0.1, 0.1)
    assert (paper.mutate.params["low"], paper.mutate.params["high"]) == (0.5, 1.5)
    assert list(paper.keep) == ["rises", "below"]
    assert list(code.keep) == ["rises"]
    assert paper.keep["below"].params["level"] == 1e-18
    assert (paper.keep["rises"].params["strict"], code.keep["rises"].params["strict"]) == (False, True)
    assert (paper.valid["within"].params["relative"], code.keep["rises"].params["within"]) == (0.5, 0.5)
    assert not code.valid
    assert (paper.schedule.params["only_kept"], code.schedule.params["only_kept"]) == (True, False)
    assert (paper.schedule.params["order"], code.schedule.params["order"]) == ("last", "first")
    assert (paper.schedule.params["apart"], code.schedule.params["apart"]) == (0.05, 0.0)
    assert code.seeds["steep"].params == {"count": 1000, "least": 0.001}


def test_idle_lanes_change_nothing(digits_model: str, digits: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU lanes without a seed are carried along for a while; nothing of theirs may be counted."""
    settings: dict[str, Any] = {"unit": 16, "lanes": 32, "curvature": "double"}
    exact = fuzz("robot", digits_model, digits[:60], run="a", **settings)
    monkeypatch.setattr(lanes, "IDLE", {"cpu": 0.9})
    idle = fuzz("robot", digits_model, digits[:60], run="b", **settings)
    assert (idle.cases, idle.failures, idle.kept) == (exact.cases, exact.failures, exact.kept)
    assert torch.allclose(idle.load().x, exact.load().x, atol=1e-4)
