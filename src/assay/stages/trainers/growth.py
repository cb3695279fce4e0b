"""How the searches of a training grow: balls to their full size, and steps where the net has come to fool fewer."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from assay.core.errors import UsageError
from assay.core.registry import Bound

SIZES = 16  # that a ball has while it grows
LARGEST = 40  # steps up to which searches double theirs
SURE = 2.0  # standard errors that what is seen on few cases must be beyond chance
FAR, LEAST = 0.25, 0.1  # shares of what withstands its own searches, and of all cases, that a better one breaks: no net
# that learns to be right is as far from it
PATIENCE = 2  # epochs on end that are no better, after which a smaller difference counts, too
# In the log of an epoch: the share of validation cases that withstand the training's attacks, in the whole ball; 1
# where that is more than withstand a better search by more than the guard, and 1 where it is by far more.
OWN, BEYOND, FOOLED = "own", "beyond", "fooled"


@dataclass(frozen=True, slots=True)
class Growth:
    """``warm`` is the share of a training in which balls grow to full size: large ones are not learned from the start.

    With a ``guard`` above 0, steps double where a net withstands its own searches on more validation cases than it
    withstands a better one: it learns to fool them and not to be right (Tramèr et al. 2018). By a quarter of them is
    enough; where it is by more than the guard, it must also have got no better for two epochs. Few steps go further
    than many in the same time as long as a net learns from them.
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

        >>> Growth(guard=0.03).times([{"score": 0.5, "fooled": 0.0}, {"score": 0.1, "fooled": 1.0}])
        2
        >>> Growth(guard=0.03).times([{"score": score, "beyond": 1.0} for score in (0.5, 0.6, 0.6)])
        1
        >>> Growth(guard=0.03).times([{"score": score, "beyond": 1.0} for score in (0.5, 0.6, 0.6, 0.6)])
        2
        """
        doublings, best, stale = 0, -1.0, 0
        for row in log if self.guard else ():
            if BEYOND in row:  # an epoch in the whole ball; in small ones a net that was robust unlearns some of it
                best, stale = max(best, row["score"]), 0 if row["score"] > best else stale + 1
            if row.get(FOOLED) or (row.get(BEYOND) and stale >= PATIENCE):
                doublings, stale = doublings + 1, 0
        return int(2**doublings)

    def seen(self, own: float, score: float, n: int, *, whole: bool = True) -> dict[str, float]:
        """What the log of an epoch tells: of ``n`` cases so many withstand its own searches, and so many a better one,
        too, in the ball of the epoch; the ``whole`` one, or one that still grows, in which only what is far counts.
        """
        more = own - score  # a case either way: the standard error of their count is its root
        sure = more - SURE * math.sqrt(max(more, 0.0) / max(n, 1))
        told = {OWN: own} if whole else {}
        if self.guard:
            told |= {BEYOND: float(sure > self.guard)} if whole else {}
            told |= {FOOLED: float(sure > max(FAR * own, LEAST))}
        return told


def grown(search: Bound, ball: float, times: int) -> Bound:
    """A search in a share of its ball, by so many times its steps, which are the smaller then; what has none stays.

    It doubles no further than to the largest number of steps. Steps that fall begin as large as before.
    """
    told = dict(search.params)
    if told.get("eps") is not None:
        told["eps"] *= ball
    if times > 1 and _has_steps(search):
        times = min(times, 2 ** max(0, int(math.log2(LARGEST / told["steps"]))))
        told |= {"steps": times * told["steps"]}
        told |= {} if told.get("falling") else {"step": told["step"] / math.sqrt(times)}
    return replace(search, params=told)


def _has_steps(search: Bound) -> bool:
    return {"steps", "step"} <= search.params.keys()
