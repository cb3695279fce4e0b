"""DSA: distance to the training traces of the same class, relative to how far these are from other classes."""

from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from assay.core import norms
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.stages.surprise.groups import BLOCK, by_group, nowhere, rows_of
from assay.stages.surprise.nearest import Points


@dataclass(slots=True)
class Distances:
    """DSA of traces by their groups. The training traces are sorted by group: those of group g lie in ``runs[g]``.

    ``beyond`` (M,) is the distance from each of them to the nearest of another group, NaN where nobody has asked for it
    yet: it is the costly half, and a few thousand traces ask only for that of the few thousand nearest to them.
    """

    known: Points
    runs: tuple[slice, ...]
    block: int
    beyond: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.beyond = torch.full_like(self.known.halves, torch.nan, dtype=torch.float64)

    def __call__(self, traces: Tensor, groups: Tensor) -> Tensor:
        return by_group(self._one, traces, groups, len(self.runs))

    def _one(self, group: int, own: Tensor) -> Tensor:
        run = self.runs[group]
        if run.start == run.stop:
            return nowhere(own)
        rows, _ = self.known.nearest(own.detach(), run, self.block)
        near = norms.safe_length(own.double() - self.known.points[rows].double())
        far = self._beyond(rows, run)
        # A trace of this group that another group has too is 0 away from it: at the trace itself nothing is surprising,
        # anywhere else everything is.
        return torch.where(far > 0, near / torch.where(far > 0, far, 1.0), torch.where(near > 0, torch.inf, near))

    def _beyond(self, rows: Tensor, run: slice) -> Tensor:
        """The distance from these training traces, all in one run, to the nearest outside of it."""
        asked = rows.unique()
        asked = asked[self.beyond[asked].isnan()]
        if len(asked):
            x = self.known.points[asked]
            sides = (slice(0, run.start), slice(run.stop, len(self.known.points)))
            self.beyond[asked] = torch.minimum(*(self.known.nearest(x, side, self.block)[1] for side in sides))
        return self.beyond[rows]


def fit_distances(
    traces: Tensor, groups: Tensor, count: int, *, share: float = 1.0, rng: Stream, block: int = BLOCK
) -> Distances:
    """Training traces (M, W) with their groups; of each group only a ``share``, drawn at random, at least one trace."""
    rows = rows_of(groups, count)
    if sum(1 for own in rows if len(own)) < 2:
        raise UsageError("dsa compares classes, and the target gives all its training data the same one")
    kept = [own[_some(len(own), share, rng.at(group)).to(own.device)] for group, own in enumerate(rows)]
    ends = accumulate((len(own) for own in kept), initial=0)
    return Distances(Points.of(traces[torch.cat(kept)]), tuple(slice(*pair) for pair in pairwise(ends)), block)


def _some(n: int, share: float, rng: Stream) -> Tensor:
    """A share of n rows, in their order."""
    if share == 1:
        return torch.arange(n)
    return torch.randperm(n, generator=rng.generator())[: min(n, max(1, round(n * share)))].sort().values
