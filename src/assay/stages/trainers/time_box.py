"""How a training is fitted into its time: how many epochs there are, and how much of the cases each goes through."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence

import torch

from assay.stages.trainers.plan import Plan
from assay.stages.trainers.ranks import Ranks

LEAST = 10  # epochs whose steps a time has room for: where they take longer, an epoch goes through a part of the cases
FEW = 4  # epochs in which a learning rate can hardly fall
PACE = 3  # epochs by whose slowest one the rest is planned
TIMED = (6, 16)  # steps between which the first epoch is timed: those before make what is made once
SURE = 0.01  # of the time: as long as timing takes less, it goes on to twice the steps; ten short ones are chance
PART = 0.25  # of an epoch: what is left of the time has one more where it has room for so much

Cost = Callable[[Sequence[Mapping[str, float]]], float]

told = logging.getLogger("assay")


class TimeBox:
    """The epochs of a plan, ``steps`` of the optimiser each; without a time they are as many as it says.

    All that is decided goes by the log, which a training that goes on has too. Only the first epoch, which has no log,
    goes by the clock; until it is timed there is no end in sight. ``judging`` says how many steps it takes to judge
    an epoch, about: what attacks validation cases takes as long as what attacks as many to learn from. ``cost`` says
    by what epochs differ, those after so many in the log: where searches grow, it is known what the next one will take.
    """

    def __init__(
        self,
        plan: Plan,
        steps: int,
        ranks: Ranks,
        device: torch.device,
        judging: float = 0.0,
        cost: Cost | None = None,
    ) -> None:
        self.plan, self.whole, self.ranks, self.device = plan, steps, ranks, device
        self.cost: Cost = cost or (lambda log: 1.0)
        self.steps, self.epochs, self.judging = steps, plan.epochs, judging * ranks.count  # one judges for all
        self.usual = steps  # of every epoch but a short last one
        self._began: float | None = None
        self._spent = 0.0  # the share of the time that the epochs in the log took
        self._first = 1.0  # the share that the first one takes, once its steps are timed

    def begin(self, log: Sequence[Mapping[str, float]]) -> int:
        """How many epochs there are, by the log of those that are done; at least one."""
        if not self.plan.time:
            return self.plan.epochs
        done = [int(row.get("steps", self.whole)) for row in log]
        self.steps, self._began = done[0] if done else self.whole, None
        self.usual, taken = self.steps, [row["seconds"] for row in log]
        self._spent = min(1.0, sum(taken) / self.plan.time)
        if done and done[-1] < self.usual:  # a short one was the last, however long it took
            self.epochs = len(log)
        elif taken:
            paces = [row["seconds"] / self.cost(log[:i]) for i, row in enumerate(log)]
            # The first is the slowest, and no measure for long.
            pace = self.cost(log) * max(paces[1:][-PACE:] or paces)
            self.epochs = len(log) + self._fitting((self.plan.time - sum(taken)) / max(pace, 1e-9))
            if len(log) == 1 and self.epochs < FEW:
                told.warning(
                    "the time has room for %d epochs of %.0f s, judging included: too little to train in; give more",
                    *(self.epochs, pace),
                )
        return self.epochs if taken else 1

    def _fitting(self, room: float) -> int:
        """How many epochs there are in the room for so many; the last may go through a part of an epoch's cases."""
        whole = int(max(0.0, room))
        steps = int((room - whole) * (self.steps + self.judging) - self.judging)
        if steps < PART * self.steps:
            return whole
        if not whole:
            self.steps = steps
        return whole + 1

    def progress(self, epoch: int, step: int) -> float:
        """The share of the training that is done before a step: of its time, where it has one."""
        if not self.plan.time:
            return (epoch + step / self.steps) / self.epochs
        if not epoch:
            return self._by_the_clock(step)
        return self._spent + (1 - self._spent) * step / self.steps / max(1, self.epochs - epoch)

    def facts(self) -> dict[str, float]:
        """What the log tells of an epoch that goes through a part of the cases."""
        return {"steps": self.steps} if self.steps < self.whole else {}

    def _by_the_clock(self, step: int) -> float:
        if step == TIMED[0]:
            self._began = self._now()
        if step < TIMED[1]:
            return 0.0
        if self._began is not None and step & (step - 1) == 0:
            each = self.ranks.told(lambda: self._each(step))
            if each * (step - TIMED[0]) < SURE * self.plan.time:
                return 0.0
            self._began = None
            room = self.plan.time / each  # for so many steps
            self.steps = self.usual = max(step + 1, min(self.whole, int(room / LEAST - self.judging)))
            share = (self.steps + self.judging) / room
            self._first = share if share <= 0.5 else 1.0  # else there is no second one
        return 0.0 if self._began is not None else self._first * step / self.steps

    def _each(self, step: int) -> float:
        """Seconds of a step, by those before this one."""
        assert self._began is not None
        return max(self._now() - self._began, 1e-9) / (step - TIMED[0])

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()
