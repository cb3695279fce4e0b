"""How the searches of a training grow: balls to their full size, and steps where the net has come to fool fewer."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from assay.core.registry import Bound

SIZES = 16  # that a ball has while it grows
DOUBLINGS = 3  # of the steps at most
OWN = "own"  # in the log of an epoch: the share of validation cases that withstand the searches it learned by


@dataclass(frozen=True, slots=True)
class Growth:
    """``warm`` is the share of a training in which balls grow to full size: large ones are not learned from the start.

    With a ``guard`` above 0, steps double after an epoch whose net withstands its own searches on more validation cases
    than it withstands a better one, by more than that: it learns to fool them and not to be right (Tramèr et al. 2018).
    """

    warm: float = 0.0
    guard: float = 0.0

    def ball(self, progress: float) -> float:
        """The share of its radius that a ball has.

        By sixteenths, not a little with every batch: a GPU replays a search, and one of another ball is another one.
        """
        return min(1.0, math.floor(1 + SIZES * progress / self.warm) / SIZES) if self.warm else 1.0

    def times(self, log: Sequence[Mapping[str, float]]) -> int:
        """How many times their first steps searches have after these epochs; all goes by the log, which is kept.

        >>> Growth(guard=0.03).times([{"own": 0.92, "score": 0.90}, {"own": 0.93, "score": 0.88}])
        2
        """
        fooled = sum(row.get(OWN, 0.0) - row["score"] > self.guard for row in log) if self.guard else 0
        return int(2 ** min(fooled, DOUBLINGS))


def grown(search: Bound, ball: float, times: int) -> Bound:
    """A search in a share of its ball, by so many times its steps, which are the smaller then; what has none stays."""
    told = dict(search.params)
    if "eps" in told:
        told["eps"] *= ball
    if times > 1 and {"steps", "step"} <= told.keys():
        told |= {"steps": times * told["steps"], "step": told["step"] / math.sqrt(times)}
    return replace(search, params=told)
