"""How the searches of a training grow: balls to their full size, and steps where the net has come to fool fewer."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from assay.core.errors import UsageError
from assay.core.registry import Bound

SIZES = 16  # that a ball has while it grows
DOUBLINGS = 3  # of the steps at most
SURE = 2.0  # standard errors that what is seen on few cases must be beyond the guard
# In the log of an epoch: the share of validation cases that withstand the training's attacks, in the whole ball; and 1
# where that is too much more than withstand a better search.
OWN, FOOLED = "own", "fooled"


@dataclass(frozen=True, slots=True)
class Growth:
    """``warm`` is the share of a training in which balls grow to full size: large ones are not learned from the start.

    With a ``guard`` above 0, steps double after an epoch whose net withstands its own searches on more validation cases
    than it withstands a better one, by more than that: it learns to fool them and not to be right (Tramèr et al. 2018).
    """

    warm: float = 0.0
    guard: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.warm <= 1 or not 0 <= self.guard < 1:
            raise UsageError(f"warm is a share of the training and guard one of cases; got {self.warm}, {self.guard}")

    def check(self, searches: Sequence[Bound]) -> None:
        """Refuse a guard where there are no steps to double."""
        if self.guard and not any(map(_has_steps, searches)):
            names = ", ".join(one.entry.name for one in searches)
            raise UsageError(f"guard doubles the steps of searches, and {names} has none; take pgd, or leave guard out")

    def ball(self, progress: float) -> float:
        """The share of its radius that a ball has.

        By sixteenths, not a little with every batch: a GPU replays a search, and one of another ball is another one.
        """
        return min(1.0, math.floor(1 + SIZES * progress / self.warm) / SIZES) if self.warm else 1.0

    def times(self, log: Sequence[Mapping[str, float]]) -> int:
        """How many times their first steps searches have after these epochs; all goes by the log, which is kept.

        >>> Growth(guard=0.03).times([{"fooled": 0.0}, {"fooled": 1.0}])
        2
        """
        return int(2 ** min(sum(row.get(FOOLED, 0.0) > 0 for row in log), DOUBLINGS)) if self.guard else 1

    def seen(self, own: float, score: float, n: int) -> dict[str, float]:
        """What the log of an epoch in the whole ball tells: of ``n`` cases so many withstand its own searches, and so
        many a better one, too.
        """
        more = own - score  # a case either way: the standard error of their count is its root
        beyond = more > self.guard + SURE * math.sqrt(more / max(n, 1))
        return {OWN: own, **({FOOLED: float(beyond)} if self.guard else {})}


def grown(search: Bound, ball: float, times: int) -> Bound:
    """A search in a share of its ball, by so many times its steps, which are the smaller then; what has none stays."""
    told = dict(search.params)
    if told.get("eps") is not None:
        told["eps"] *= ball
    if times > 1 and _has_steps(search):
        told |= {"steps": times * told["steps"], "step": told["step"] / math.sqrt(times)}
    return replace(search, params=told)


def _has_steps(search: Bound) -> bool:
    return {"steps", "step"} <= search.params.keys()
