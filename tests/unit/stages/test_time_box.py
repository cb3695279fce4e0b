"""Trainings that end in time, and the passes they count."""

import copy
import itertools
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from assay.core import passes
from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.core.specs import step
from assay.engines.train import train
from assay.stages.trainers import graphed
from assay.stages.trainers.loop import Moment, accuracy, fit
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.ranks import Ranks
from assay.stages.trainers.time_box import TimeBox
from assay.stages.trainers.watch import State, Unwatched
from assay.subjects.bench import Data, Splits
from assay.subjects.sources.module import ModuleTarget

SPEC = InputSpec((4,), (0.0, 1.0), ("low", "high"))


def cases(n: int = 64) -> Cases:
    x = torch.rand(n, 4, generator=torch.Generator().manual_seed(n))
    return Cases.of(x, (x[:, 0] > 0.5).long())


def net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


class Keeper(Unwatched):
    def __init__(self, start: State | None = None) -> None:
        self.start, self.log, self.states = start, list[dict[str, float]](), list[State]()

    def resume(self) -> State | None:
        return self.start

    def epoch(self, state: State, net: nn.Module) -> None:
        self.log = list(state.log)
        self.states.append(copy.deepcopy(state))


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of the epochs to come: the first takes the first of them, the last is repeated."""
    taken: list[float] = []
    now, reads = [0.0], itertools.count()

    def clock() -> float:
        read = next(reads)
        if read % 2:  # asked when an epoch begins and when it is over
            now[0] += taken.pop(0) if len(taken) > 1 else taken[0]
        return now[0]

    monkeypatch.setattr("assay.stages.trainers.loop.time.perf_counter", clock)
    return taken


def test_epochs_are_as_many_as_fit() -> None:
    def count(*seconds: float, time: float = 10.0) -> int:
        return TimeBox(Plan(3, time=time), 4, Ranks(), torch.device("cpu")).begin([{"seconds": s} for s in seconds])

    assert count(time=0.0) == 3
    assert count() == 1  # there will be one
    assert count(4.0) == 3  # 6 s are left, and one took 4: the last goes through half of the cases
    assert count(4.0, 1.0) == 7  # the first is no measure once there is another
    assert count(4.0, 1.0, 2.0) == 5  # 3 s are left, and the slowest of late took 2
    assert count(4.0, 5.0) == 2  # a fifth of an epoch is not worth judging
    assert count(11.0) == 1


def test_an_epoch_that_will_take_longer_is_planned_so() -> None:
    """Each after the second takes three times as much, which the log tells before they do."""

    def count(*seconds: float) -> int:
        box = TimeBox(
            Plan(3, time=20.0), 4, Ranks(), torch.device("cpu"), cost=lambda log: 3.0 if len(log) > 1 else 1.0
        )
        return box.begin([{"seconds": s} for s in seconds])

    assert count(1.0) == 20
    assert count(1.0, 1.0) == 2 + 6
    assert count(1.0, 1.0, 3.0) == 3 + 5


class Ticking(Keeper):
    """A second a step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, start: State | None = None) -> None:
        super().__init__(start)
        self.now, self.moments = 0.0, list[float]()
        monkeypatch.setattr("assay.stages.trainers.loop.time.perf_counter", lambda: self.now)

    def batch(self, epoch: int, done: float) -> None:
        self.now += 1

    def asked(self, net: nn.Module, x: Tensor, y: Tensor, ids: Tensor, at: Moment) -> tuple[Tensor]:
        self.moments.append(at.progress)
        return (x,)


def test_where_cases_take_too_long_an_epoch_goes_through_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    ticking, plan = Ticking(monkeypatch), Plan(1, 2, 0.1, time=400.0)
    net_, train, val = net(), cases(800), cases(16)  # 400 steps
    whole = fit(net_, train, val, plan, rng=Stream(0), watch=ticking, batch=ticking.asked)
    assert [row["steps"] for row in ticking.log] == [40] * 10
    assert ticking.now == 400
    assert ticking.moments[:16] == [0.0] * 16
    assert ticking.moments[16:] == pytest.approx([step / 400 for step in range(16, 400)])
    later = Ticking(monkeypatch, ticking.states[4])
    again = fit(net_, train, val, plan, rng=Stream(0), watch=later, batch=later.asked)
    assert later.moments == ticking.moments[200:]
    for one, other in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_last_epoch_that_is_short_leaves_room_for_judging() -> None:
    """An epoch has 40 steps of a tenth of a second, and judging it takes as long as 20."""

    def planned(time: float) -> tuple[int, int]:
        box = TimeBox(Plan(3, time=time), 40, Ranks(), torch.device("cpu"), judging=20.0)
        return box.begin([{"seconds": 6.0}]), box.steps

    assert planned(10.05) == (2, 20)  # four seconds: two of them to judge
    assert planned(8.9) == (1, 40)  # nine steps, not worth it
    assert planned(16.05) == (3, 40)  # the short one is the last


def test_after_a_short_epoch_there_is_none() -> None:
    box = TimeBox(Plan(3, time=10.0), 40, Ranks(), torch.device("cpu"))
    assert box.begin([{"seconds": 6.0}]) == 2
    assert (box.steps, box.usual) == (26, 40)
    assert box.begin([{"seconds": 6.0}, {"seconds": 1.5, "steps": 26}]) == 2  # though it was done sooner


def test_short_steps_are_timed_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ten that are timed at first are slow by chance; in so long a time more of them say how long epochs are."""
    ticking = Ticking(monkeypatch)

    def asked(net: nn.Module, x: Tensor, y: Tensor, ids: Tensor, at: Moment) -> tuple[Tensor]:
        ticking.now += 2.5 * (6 <= len(ticking.moments) < 16)
        return ticking.asked(net, x, y, ids, at)

    fit(net(), cases(1000), cases(16), Plan(1, 2, 0.1, time=4000.0), rng=Stream(0), watch=ticking, batch=asked)
    assert ticking.log[0]["steps"] == int(400 / (51 / 26))  # by the ten alone it would be 400 / 3.5


def test_judging_takes_of_the_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as ten steps, where ten epochs may have forty each."""
    ticking = Ticking(monkeypatch)

    def judge(net: nn.Module, val: Cases) -> dict[str, float]:
        ticking.now += 10
        return accuracy(net, val)

    plan = Plan(1, 2, 0.1, time=400.0)
    fit(net(), cases(800), cases(20), plan, rng=Stream(0), watch=ticking, batch=ticking.asked, judge=judge, judging=20)
    assert [row["steps"] for row in ticking.log] == [30] * 10
    assert ticking.now == 400
    assert ticking.moments[16:] == pytest.approx([step / 300 for step in range(16, 300)])


def test_one_whose_searches_grow_takes_its_time_and_grows_by_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes a second at first, three when three tenths of the time are gone."""
    ticking = Ticking(monkeypatch)

    def asked(net: nn.Module, x: Tensor, y: Tensor, ids: Tensor, at: Moment) -> tuple[Tensor]:
        ticking.now += 2 * (at.progress >= 0.3)
        return ticking.asked(net, x, y, ids, at)

    plan = Plan(1, 2, 0.1, time=1200.0)
    fit(net(), cases(800), cases(16), plan, rng=Stream(0), watch=ticking, batch=asked)
    assert 900 < ticking.now <= 1200, "all but part of an epoch of 360 s"
    small = sum(progress < 0.3 for progress in ticking.moments)
    assert 0.25 < small / 1200 < 0.35, "a second each"
    assert ticking.moments == sorted(ticking.moments)
    assert ticking.moments[-1] > 0.95


def test_a_training_ends_in_time_at_the_lowest_rate(seconds: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []
    usual = graphed.set_rate

    def spied(optimiser: torch.optim.Optimizer, rate: float) -> None:
        rates.append(rate)
        usual(optimiser, rate)

    monkeypatch.setattr(graphed, "set_rate", spied)
    seconds += [3.0, *[2.0] * 8, 1.0]
    keeper = Keeper()
    fit(net(), cases(), cases(16), Plan(1, 16, 0.1, time=20.0), rng=Stream(0), watch=keeper)
    assert [row.get("steps", 4) for row in keeper.log] == [4] * 9 + [2]  # the last second is half an epoch
    assert sum(row["seconds"] for row in keeper.log) == 20.0
    assert rates[0] == pytest.approx(0.1)
    assert rates[-1] < 0.001


def test_one_that_grows_slower_ends_in_time_too(seconds: list[float]) -> None:
    seconds += [1.0, 1.0, 1.0, 1.0, 4.0]
    keeper = Keeper()
    fit(net(), cases(), cases(16), Plan(1, 16, 0.1, time=20.0), rng=Stream(0), watch=keeper)
    assert sum(row["seconds"] for row in keeper.log) == 20.0


def test_one_that_was_stopped_ends_the_same(seconds: list[float]) -> None:
    seconds += [3.0, 2.0]
    plan, keeper = Plan(1, 16, 0.1, ema=0.9, time=20.0), Keeper()
    whole = fit(net(), cases(), cases(16), plan, rng=Stream(0), watch=keeper)
    seconds[:] = [2.0]
    again = fit(net(), cases(), cases(16), plan, rng=Stream(0), watch=Keeper(keeper.states[3]))
    for one, other in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


def test_an_epoch_that_takes_all_the_time_is_made(seconds: list[float]) -> None:
    seconds += [50.0]
    keeper = Keeper()
    fit(net(), cases(), cases(16), Plan(7, 16, 0.1, time=20.0), rng=Stream(0), watch=keeper)
    assert len(keeper.log) == 1


def test_time_is_not_negative() -> None:
    with pytest.raises(UsageError, match="time must be at least 0"):
        Plan(1, time=-1.0).check()


def test_a_training_by_the_clock(tmp_path: Path) -> None:
    told = train("mlp", "digits", tmp_path / "m.safetensors", params={"time": 1.0, "batch": 256}, device="cpu")
    assert told.seconds > 0.3
    assert told.epochs > 1


@pytest.mark.parametrize(
    ("trainer", "each"),
    [
        ("plain", 2),
        ("adversarial(eps=0.1, attack=pgd(steps=3, early_stop=false))", 2 + 2 * 3),
        ("adversarial(eps=0.1, attack=pgd(steps=3, early_stop=false), share=0.5)", 2 + 3),
        ("adversarial(eps=0.1, attack=pgd(steps=3, early_stop=false), awp=0.01)", 4 + 2 * 3),
        ("trades(eps=0.1, attack=pgd(steps=3, early_stop=false))", 4 + 1 + 2 * 3),
        ("mart(eps=0.1, attack=pgd(steps=3, early_stop=false))", 4 + 2 * 3),
    ],
)
def test_passes_of_a_trainer(trainer: str, each: int) -> None:
    data = Splits("t", Data("train", cases(64), SPEC), Data("val", cases(16), SPEC))
    keeper = Keeper()
    name, params = step(trainer)
    bind("trainer", name, params | {"epochs": 2, "batch": 16})(net(), data, None, rng=Stream(0), watch=keeper)
    assert [row["passes"] for row in keeper.log] == [64 * each, 64 * each]


def test_whoever_counts_counts_what_is_asked_meanwhile() -> None:
    target, x = ModuleTarget(net(), SPEC), cases(6).x
    with passes.counted() as outer:
        target(x)
        with passes.counted() as inner:
            at = x.clone().requires_grad_()
            torch.autograd.grad(target(at).sum(), at)
    target(x)
    assert (outer.forward, outer.gradient, inner.forward, inner.gradient) == (12, 6, 6, 6)
