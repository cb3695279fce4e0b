"""Several trainings from one start: each is as it would be alone, and a stopped one goes on where it was."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.stages.trainers.loop import Task, fit, rank
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.trials import best_rate
from assay.stages.trainers.watch import State
from watching import StateKeeper

RNG = Stream(7)
PLAN = Plan(5, 32, schedule="constant")
RATES = (0.1, 0.02, 0.004)


def parted(n: int = 160, seed: int = 0) -> Cases:
    """Two classes that overlap a little."""
    y = torch.arange(n) % 2
    noise = torch.randn(n, 2, generator=torch.Generator().manual_seed(seed))
    return Cases.of((0.35 + 0.3 * y[:, None] + 0.15 * noise).clamp(0, 1), y)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))


def learns(net: nn.Module, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
    return nn.functional.cross_entropy(net(x), y)


def forgets(net: nn.Module, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
    """Every epoch is worse than the one before it: patience ends after the first."""
    return -learns(net, x, y, rows)


def task(patience: int) -> Task:
    return Task(forgets if patience else learns)


def tried(patience: int = 0, start: State | None = None) -> tuple[nn.Module, StateKeeper]:
    keeper = StateKeeper(None if start is None else copy.deepcopy(start))
    made = best_rate(
        net(), parted(), parted(60, 1), PLAN, RATES, rng=RNG, watch=keeper, task=task(patience), patience=patience
    )
    return made, keeper


def alone(number: int, patience: int = 0) -> list[State]:
    """The states of one trial without the others."""
    keeper, rng = StateKeeper(), RNG.at("trial", number)
    plan = replace(PLAN, lr=RATES[number])
    fit(net(), parted(), parted(60, 1), plan, rng=rng, watch=keeper, task=task(patience), patience=patience)
    return keeper.states


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def rates(states: list[State]) -> list[float]:
    return [row["lr"] for row in states[-1].log]


@pytest.mark.parametrize("patience", [0, 1, 3])
def test_every_trial_is_what_it_would_be_alone(patience: int) -> None:
    """It begins with the start, not with what the trial before it left: weights, optimiser, patience."""
    made, keeper = tried(patience)
    each = [alone(number, patience) for number in range(3)]
    assert [len(states) for states in each] == [patience + 1 if patience else 5] * 3
    lone = [state for states in each for state in states]
    assert len(keeper.states) == len(lone)
    for state, other in zip(keeper.states, lone, strict=True):
        assert same(state.weights, other.weights)
        told, row = state.log[-1], other.log[-1]
        assert [told[name] for name in row if name != "seconds"] == [row[name] for name in row if name != "seconds"]
    # Of all of them the best epoch, whichever trial it is of.
    best = max(lone, key=lambda state: rank(state.log[-1]))
    assert same(dict(made.state_dict()), best.weights)
    assert [state.epoch for state in keeper.states] == list(range(1, len(lone) + 1)), "counted over all trials"
    assert rates(keeper.states) == [rate for rate, states in zip(RATES, each, strict=True) for _ in states]


def test_progress_never_goes_back() -> None:
    _, keeper = tried(patience=1)
    assert keeper.heard == sorted(keeper.heard)
    assert keeper.heard[-1] == len(keeper.states) == 6


@pytest.mark.parametrize("patience", [0, 1, 2])
def test_a_stopped_work_goes_on_and_ends_the_same(patience: int) -> None:
    """Also behind a trial that ended before its last epoch: it is over, not to be gone on with."""
    made, whole = tried(patience)
    count = len(whole.states)
    assert count == 3 * (patience + 1 if patience else 5)
    for done, state in enumerate(whole.states, 1):
        again, rest = tried(patience, state)
        assert len(rest.states) == count - done, f"stopped after {done} of {count}"
        assert all(same(a.weights, b.weights) for a, b in zip(rest.states, whole.states[done:], strict=True))
        assert rates(rest.states or whole.states) == rates(whole.states)
        assert same(dict(again.state_dict()), dict(made.state_dict()))


def test_the_module_itself_stays() -> None:
    module = net()
    before = copy.deepcopy(module.state_dict())
    best_rate(module, parted(), parted(60, 1), PLAN, RATES, rng=RNG, watch=StateKeeper(), task=task(0), patience=0)
    assert same(dict(module.state_dict()), dict(before))
