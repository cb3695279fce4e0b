"""Several trainings from one start, of which the best epoch of all is the result: how a learning rate is chosen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.stages.trainers.loop import Judge, Task, accuracy, fit
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.watch import State, Watch


def best_rate(
    module: nn.Module,
    train: Cases,
    val: Cases,
    plan: Plan,
    rates: Sequence[float],
    *,
    rng: Stream,
    watch: Watch,
    task: Task,
    patience: int,
) -> nn.Module:
    """The module trained with every rate in turn, and of all epochs the one that does best on ``val``.

    Each epoch tells its rate (``lr``) in the log. A stopped work goes on in the trial and epoch where it was.
    """
    start = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
    kept = _Kept(start, watch.resume())
    made = module
    for number, rate in enumerate(rates):
        if kept.has(rates[number + 1 :]):
            continue  # a later trial has begun, so this one is over
        trial = _Trial(watch, kept, rate)
        made = fit(
            module, train, val, replace(plan, lr=rate), rng=rng.at("trial", number), watch=trial, judge=_told(rate),
            task=task, patience=patience,
        )  # fmt: skip
    return made


def _told(rate: float) -> Judge:
    return lambda net, val: accuracy(net, val) | {"lr": rate}


@dataclass(slots=True)
class _Kept:
    """The start of every trial, and how far they have come in all."""

    start: Mapping[str, Tensor]
    state: State | None

    def has(self, rates: Sequence[float]) -> bool:
        return self.state is not None and any(row["lr"] in rates for row in self.state.log)


@dataclass(slots=True)
class _Trial:
    """Looks on at one trial: its own epochs are counted, the best weights and the log are those of all."""

    watch: Watch
    kept: _Kept
    rate: float

    def resume(self) -> State | None:
        state = self.kept.state
        if state is None:
            return None
        own = sum(row["lr"] == self.rate for row in state.log)
        return replace(state, epoch=own) if own else State(0, dict(self.kept.start), {}, {}, state.best, state.log)

    def batch(self, epoch: int, done: float) -> None:
        before = 0 if self.kept.state is None else sum(row["lr"] != self.rate for row in self.kept.state.log)
        self.watch.batch(before + epoch, done)

    def epoch(self, state: State, net: nn.Module) -> None:
        self.kept.state = state
        self.watch.epoch(replace(state, epoch=len(state.log)), net)

    def note(self, facts: Mapping[str, Any]) -> None:
        self.watch.note(facts)
