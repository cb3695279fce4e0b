"""Schedules: what a lane does next. A schedule is a function of its parameters that returns a ``Schedule``."""

from typing import NamedTuple, Protocol

from torch import Tensor

from assay.core.cases import Cases


class Next(NamedTuple):
    """The lanes as they go on, which of their seeds are done, and which of the failures are stored, (N,) bool."""

    lanes: Cases
    ended: Tensor
    stored: Tensor


class Schedule(Protocol):
    """The memory of each lane, as columns of its row, and what follows from it.

    Lanes have the columns ``seed_x``, ``step`` (steps done), ``opening`` (this look is at the seed itself and is
    neither step nor case) and, where the recipe has an objective, ``slope``. Columns a schedule made are its own to
    write.
    """

    def start(self, lanes: Cases) -> Cases:
        """Lanes at their seeds, with the schedule's columns added."""
        ...

    def next(self, lanes: Cases, made: Cases, kept: Tensor, failing: Tensor) -> Next:
        """After a step: ``made`` is what became of the lanes, ``kept`` says what may be gone on from."""
        ...
