"""What guides a campaign, checked from outside: coverage counted again, paths walked again, learning carried over."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.core import registry, store
from assay.core.cases import Cases, InputSpec, inside
from assay.core.randomness import Rows, Stream
from assay.core.registry import register
from assay.engines.fuzz import fuzz
from assay.recipes.recipe import resolve
from assay.stages.coverage import Coverage
from assay.stages.strategies import Push
from assay.stages.strategies.adapt import Adapt, Adapting
from assay.subjects.bench import Bench, Data
from assay.subjects.data.load import load_data
from assay.subjects.observer import Observer, Seen
from assay.subjects.sources.folded import folded
from assay.subjects.sources.module import ModuleTarget

NC = "nc(threshold=0.5, scaled=false)"


@pytest.fixture(autouse=True)
def _only_ours() -> Iterator[None]:
    """Forget what a test registered; what importing our own files registered stays, as importing does not repeat."""
    yield
    for key, (told, _) in list(registry._runtime.items()):
        if not told.module.startswith("assay."):
            del registry._runtime[key]


def journal(run: Path) -> list[tuple[dict[str, Any], dict[str, str]]]:
    """What the commits of a run say, with the digests of their files."""
    return [(dict(line.meta), dict(line.files)) for line in store.read(run).commits("fuzz")]


def straight(width: int) -> nn.Module:
    """A net whose logits are its inputs: pushing neuron j moves x along axis j."""
    net = nn.Linear(width, width)
    with torch.no_grad():
        net.weight.copy_(torch.eye(width))
        net.bias.zero_()
    return net


def vectors(x: Tensor, name: str = "vectors", classes: int | None = None) -> Data:
    """Inputs in [0, 1], each with its largest entry as its class."""
    spec = InputSpec((x.shape[1],), (0.0, 1.0), tuple(map(str, range(classes or x.shape[1]))))
    return Data(name, Cases.of(x, x.argmax(1) if classes is None else torch.zeros(len(x), dtype=torch.int64)), spec)


# What a strategy learnt.


@dataclass
class Tally:
    """A strategy that pushes the neuron whose number is the steps made so far, and counts what it is told of."""

    width: int
    k: int = 1
    ends: bool = False
    told: dict[str, int] = field(default_factory=lambda: {"cases": 0, "ended": 0})

    def begin(self, observer: Observer, rng: Stream) -> "Tally":
        return self

    def start(self, lanes: Cases) -> Cases:
        return lanes

    def choose(self, lanes: Cases, seen: Seen, coverage: Coverage, rng: Rows) -> Push:
        neurons = lanes.info["step"][:, None] % self.width
        return Push(neurons, torch.ones_like(neurons, dtype=torch.float32))

    def learn(self, lanes: Cases, seen: Seen, failing: Tensor, counted: Tensor) -> Cases:
        self.told["cases"] += int(counted.sum())
        return lanes

    def end(self, lanes: Cases) -> None:
        self.told["ended"] += len(lanes)

    def state(self) -> dict[str, Tensor]:
        return {name: torch.tensor(count) for name, count in self.told.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.told = {name: int(count) for name, count in state.items()}


def tallies(width: int) -> list[Tally]:
    """Register the strategy ``tally``; what it makes is put into the list, the campaign's own last."""
    made: list[Tally] = []

    @register("strategy", needs=("activation",))
    def tally() -> Tally:
        made.append(Tally(width))
        return made[-1]

    return made


def test_a_strategy_is_told_of_every_case_and_seed_and_finds_it_again() -> None:
    """Three sessions of one run, whose seeds end at their first failure or after three cases."""
    x = torch.rand(40, 4, generator=torch.Generator().manual_seed(0))
    made = tallies(4)
    changes = {"coverage": NC, "strategy": "tally", "seeds": "all", "schedule": "per_seed(steps=3)"}
    seeds = 0
    for budget in (20, 60, 140):
        found = fuzz("noise", straight(4), vectors(x), run="a", cases=budget, eps=0.3, unit=16, changes=changes)
        assert made[-1].told == {"cases": found.cases, "ended": found.seeds}
        assert found.seeds > seeds
        seeds = found.seeds
    assert seeds > 40
    assert 1.2 * seeds < found.cases < 2.8 * seeds, "some seeds ended before others"


@pytest.mark.parametrize(
    ("recipe", "strategy"),
    [("adapt", "adapt(k=10, population=6)"), ("dlfuzz", "often(k=5)"), ("dlfuzz", 'mixed(of="often, rare", m=6)')],
)
def test_a_strategy_goes_on_from_what_it_learnt(recipe: str, strategy: str, digits_model: str) -> None:
    data = load_data("digits/test[:24]")
    told: dict[str, Any] = {"unit": 8, "deterministic": True}
    told["changes"] = {"strategy": strategy, "schedule.steps": 12, "schedule.apart": 0.0}
    whole = fuzz(recipe, digits_model, data, run="whole", cases=300, **told)
    lines = journal(whole.run)
    assert len(lines) > 3
    budget = 0
    for meta, _ in lines:
        budget += meta["counts"]["cases"]  # at the end of a unit: what follows is the next one
        parts = fuzz(recipe, digits_model, data, run="parts", cases=budget, **told)
    assert whole.failures > 3
    assert torch.equal(whole.load().x, parts.load().x)
    assert journal(parts.run) == lines


@pytest.mark.parametrize(("seeds", "generation"), [(3, 0), (4, 1), (13, 3)])
def test_adapt_breeds_when_as_many_seeds_ended_as_there_are_vectors(
    seeds: int, generation: int, digits_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[Adapting, Tensor]] = []
    begin = Adapt.begin

    def watched(self: Adapt, observer: Observer, rng: Stream) -> Adapting:
        chooser = begin(self, observer, rng)
        made.append((chooser, chooser.vectors.clone()))
        return chooser

    monkeypatch.setattr(Adapt, "begin", watched)
    changes = {"strategy": "adapt(population=4)", "seeds": "all", "schedule.steps": 5}
    found = fuzz("adapt", digits_model, load_data(f"digits/test[:{seeds}]"), run="a", lanes=1, changes=changes)
    chooser, first = made[-1]
    assert found.seeds == seeds
    assert chooser.generation == generation
    assert chooser.vectors.shape == first.shape
    assert bool((chooser.vectors != first).any(1).all()) == (generation > 0)


# A case taken out of the queue.


@pytest.mark.parametrize(("order", "lanes"), [("first", "auto"), ("last", "auto"), ("first", 2)])
def test_a_case_taken_out_is_pushed_along_neurons_chosen_anew(order: str, lanes: int | str) -> None:
    """All cases are kept and stored; where each one lies is walked again here, a queue and a push at a time.

    With two lanes both seeds end at once, and the next two take their places: they must be looked at first, too.
    """
    tallies(5)

    @register("oracle")
    def always(bench: Bench, cases: Cases) -> Tensor:
        return torch.ones_like(cases.y, dtype=torch.bool)

    seeds = torch.rand(6, 5, generator=torch.Generator().manual_seed(1)) / 4
    queue = f"queue(iters=3, pops=4, order={order}, depth=50, cases=50, apart=0, only_kept=false, reopen=true)"
    changes = {"seeds": "all", "objective": "neurons", "oracle": "always", "valid": [], "keep": [], "schedule": queue}
    changes |= {"coverage": NC, "strategy": "tally", "layers": "logits", "mutate": "ascend(lr=0.01, low=1, high=1)"}
    found = fuzz("dlfuzz", straight(5), vectors(seeds), run="a", lanes=lanes, changes=changes)
    assert found.cases == 6 * 4 * 3, "a look is no case"

    def walked(seed: Tensor) -> Tensor:
        waiting = [seed]
        made: list[Tensor] = []
        for _ in range(4):
            x = waiting.pop(0 if order == "first" else -1)
            push = 0.01 * torch.eye(5)[len(made) % 5]
            for _ in range(3):
                x = x + push
                made.append(x)
                waiting.append(x)
        return torch.stack(made)

    cases = found.load()
    for row, seed in enumerate(seeds):
        mine = cases[cases.origin == row]
        assert mine.info["step"].tolist() == list(range(1, 13))
        torch.testing.assert_close(mine.x, walked(seed))


def test_recipes_that_choose_neurons_look_again_at_what_they_take_out() -> None:
    fuzzers = [name for name in registry.names("recipe") if registry.lookup("recipe", name)[1].mutate]
    chosen = [resolve(name, {}, {"eps": 0.1, "norm": "linf"}) for name in fuzzers]
    queues = [s for s in chosen if s.strategy is not None and s.schedule.entry.name == "queue"]
    again = {s.name for s in queues if s.schedule.params["pops"] > 1}
    assert {"adapt", "dlfuzz", "deepxplore-alone"} <= again
    assert {s.name for s in queues if s.schedule.params["reopen"]} >= again


# What covers anything.


@pytest.mark.parametrize("counted", ["all", "failures"])
@pytest.mark.parametrize("ruled", [True, False])
def test_cases_that_are_none_cover_nothing(counted: str, ruled: bool) -> None:
    """Those a rule refuses, and those outside the bounds; seeds and the others are counted again here."""

    @register("mutator")
    def lighter(bench: Bench, cases: Cases, *, rng: Rows) -> Tensor:
        step = cases.info.get("step", torch.zeros_like(cases.origin))
        return cases.info["seed_x"] + 0.1 * (step + 1)[:, None]

    @register("filter")
    def dark(bench: Bench, cases: Cases) -> Tensor:
        return cases.x.mean(1) < 0.45

    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(6, 200), nn.ReLU(), nn.Linear(200, 3))
    seeds = torch.rand(30, 6) / 2
    target = ModuleTarget(net, vectors(seeds, classes=3).spec)
    data = Data("seeds", Cases.of(seeds, target(seeds).argmax(1).detach()), target.spec)
    changes: dict[str, Any] = {"coverage": "nc(threshold=0.45, scaled=false)", "counted": counted}
    changes |= {"mutate": "lighter", "schedule": "per_seed(steps=9, failures=99)", "valid": ["dark"] if ruled else []}
    found = fuzz("noise", net, data, run="a", changes=changes)

    x = torch.stack([seeds + 0.1 * step for step in range(10)])
    seen = Observer.of([target], "auto").all(x.flatten(0, 1), Bench(target).chunks)
    active, seed = seen.neurons > 0.45, (torch.arange(10) == 0).repeat_interleave(30)
    legal, refused = inside(x.flatten(0, 1), (0.0, 1.0)), ruled & (x.flatten(0, 1).mean(1) >= 0.45)
    wanted = ~seed & (seen.logits.argmax(1) != data.cases.y.repeat(10)) if counted == "failures" else seed | True

    def covered(rows: Tensor) -> int:
        return int(active[rows & wanted].any(0).sum())

    assert found.cases == 9 * 30
    assert found.coverage is not None
    assert found.coverage["covered"] == covered(legal & (seed | ~refused))
    assert found.coverage["covered"] < covered(legal if ruled else ~refused), "what is left out would show"


def sections(values: Tensor, training: Tensor, k: int) -> int:
    """How many of k sections between the least and greatest training value are reached, over all columns."""
    low, high = training.double().amin(0), training.double().amax(0)
    place = ((values.double() - low) / (high - low) * k).floor().clamp(max=k - 1)
    reached = (values >= low) & (values <= high)
    return sum(len(place[reached[:, j], j].unique()) for j in range(values.shape[1]))


def line(start: float, stop: float, count: int) -> Data:
    """Points on a line, none of them where two sections of a thousand meet."""
    x = (start + (stop - start) * (torch.arange(count) + 0.5) / count)[:, None]
    return vectors(torch.cat([x, 1 - x], 1), f"line from {start} to {stop}")


def test_ranges_are_those_of_the_training_data_given() -> None:
    data, told = line(0.0, 1.0, 301), []
    changes = {"coverage": "kmnc(k=1000)", "layers": "logits", "seeds": "all"}
    for start, stop in ((0.0, 1.0), (0.1, 0.6), (0.45, 0.55)):
        training = line(start, stop, 7)
        found = fuzz("noise", straight(2), data, run=f"{start}", eps=0.0, training=training, changes=changes)
        assert found.coverage is not None
        assert found.coverage["covered"] == sections(data.cases.x, training.cases.x, 1000)
        told.append(found.coverage["covered"])
    assert len(set(told)) == 3


def test_a_pool_begins_with_what_its_seeds_cover() -> None:
    """More seeds than are looked at at a time, and every one of them covers sections that no other does."""
    data, training = line(0.0, 1.0, 600), line(0.05, 0.95, 9)
    changes = {"coverage": "kmnc(k=1000)", "layers": "logits", "seeds": "all", "keep": "gains"}
    changes["schedule"] = "pool(mutants=2, pick=uniform)"
    told: dict[str, Any] = {"training": training, "changes": changes, "unit": 16}
    expected = sections(data.cases.x, training.cases.x, 1000)
    still = fuzz("noise", straight(2), data, run="still", cases=320, eps=0.0, **told)
    assert still.coverage is not None
    assert still.coverage["seeds"] == still.coverage["covered"] == expected
    assert still.kept == {"gains": 0}, "what the seeds cover is nothing new"
    for budget in (64, 128):
        moved = fuzz("noise", straight(2), data, run="moved", cases=budget, eps=0.1, **told)
        assert moved.coverage is not None
        assert moved.coverage["seeds"] == expected < moved.coverage["covered"]
        assert moved.kept["gains"] > 0


def test_neurons_are_those_of_the_net_as_it_came(tmp_path: Path) -> None:
    """One with a batch normalisation, which is folded into the convolution where nobody looks at neurons."""
    torch.manual_seed(0)
    net = nn.Sequential()
    for name, module in (
        ("conv", nn.Conv2d(1, 24, 3)),
        ("norm", nn.BatchNorm2d(24)),
        ("flat", nn.Flatten()),
        ("out", nn.Linear(864, 10)),
    ):
        net.add_module(name, module)
    with torch.no_grad():
        net.norm.running_mean.uniform_(-0.5, 0.5)  # type: ignore[union-attr, operator]
        net.norm.running_var.uniform_(0.1, 0.4)  # type: ignore[union-attr, operator]
    data = load_data("digits/test[:20]")
    target, x = ModuleTarget(net, data.spec), data.cases.x
    values, normal = (Observer.of([target], name).all(x, Bench(target).chunks).neurons for name in ("conv", "norm"))
    others = Observer.of([folded(target, x)], "conv").all(x, Bench(target).chunks).neurons
    expected = int((values > 0.2).any(0).sum())
    assert 0 < expected != int((others > 0.2).any(0).sum()), "folding would show"

    level = float(normal[:, 0].sort().values[9:11].mean())
    mine = tmp_path / "mine.py"
    mine.write_text(f"def bright(bench, cases):\n    return bench.traces(cases, 'norm')[:, 0] > {level!r}\n")
    changes = {"coverage": "nc(threshold=0.2, scaled=false)", "layers": "conv", "seeds": "all"}
    changes |= {"schedule": "per_seed(steps=1)", "keep": f"{mine}:bright"}
    found = fuzz("noise", net, data, run="a", eps=0.0, changes=changes)
    assert found.coverage is not None
    assert found.coverage["covered"] == expected
    assert found.kept == {"bright": 10}, "rules see the same net"
