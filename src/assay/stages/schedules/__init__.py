"""Schedules: what a lane does next. A schedule is a function of its parameters that returns a ``Schedule``."""

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.core.shapes import column


class Next(NamedTuple):
    """The lanes as they go on, which of their seeds are done, and which of the failures are stored, (N,) bool."""

    lanes: Cases
    ended: Tensor
    stored: Tensor


class Schedule(Protocol):
    """The memory of each lane, as columns of its row, and what follows from it.

    Lanes have the columns ``seed_x``, ``step`` (steps done), ``opening`` (this look is at the seed itself and is
    neither step nor case) and, where the recipe has an objective, ``slope``. Columns a schedule made are its own to
    write; with the column ``look`` it asks for another look at the case a lane stands at, before it steps.
    """

    def start(self, lanes: Cases) -> Cases:
        """Lanes at their seeds, with the schedule's columns added."""
        ...

    def next(self, lanes: Cases, made: Cases, kept: Tensor, failing: Tensor) -> Next:
        """After a step: ``made`` is what became of the lanes, ``kept`` says what may be gone on from."""
        ...


class Members(NamedTuple):
    """How the members of a pool stand: how often each was taken, how many joined from it, where the last walk ended.

    ``entered`` (float64) is when each joined, seeds at 0; ``now`` is the present. Time is counted in rounds: one has
    passed when as many parents were taken as there are seeds.
    """

    taken: Tensor
    gained: Tensor
    entered: Tensor
    now: float
    cursor: int


@runtime_checkable
class Pooled(Schedule, Protocol):
    """A schedule with one pool of parents for all seeds."""

    @property
    def most(self) -> int:
        """Cases the pool holds beside the seeds."""
        ...

    @property
    def mutants(self) -> int:
        """Cases made of a parent each time it is taken."""
        ...

    def pick(self, members: Members, n: int, rng: Stream) -> Tensor:
        """The parents to work next, (n,) places in the pool."""
        ...

    def joins(self, kept: Tensor, failing: Tensor, depth: Tensor) -> Tensor:
        """Which cases become parents, (N,) bool; ``depth`` counts the steps from the root to their own parents."""
        ...


def standing(lanes: Cases, made: Cases) -> Cases:
    """Lanes that stay where they are, with the slope that their opening look has found."""
    if "slope" not in made.info:
        return lanes
    opening = column(lanes.info["opening"], made.x)
    return lanes.note(slope=torch.where(opening, made.info["slope"], lanes.info["slope"]))
