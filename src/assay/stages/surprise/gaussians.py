"""MDSA: Mahalanobis distance to the training traces of a group."""

from dataclasses import dataclass

from torch import Tensor

from assay.core import norms
from assay.stages.surprise.groups import by_group, nowhere, rows_of
from assay.stages.surprise.spread import Spread, spread, steady, usual_scale, variances


@dataclass(frozen=True, slots=True)
class Mahalanobis:
    """MDSA of traces by their groups: the distance itself, not its square."""

    each: tuple[Spread | None, ...]

    def __call__(self, traces: Tensor, groups: Tensor) -> Tensor:
        def one(group: int, own: Tensor) -> Tensor:
            about = self.each[group]
            return nowhere(own) if about is None else norms.safe_length(about.whiten(own))

        return by_group(one, traces, groups, len(self.each))


def fit_gaussians(traces: Tensor, groups: Tensor, count: int, *, jitter: float = 1e-6) -> Mahalanobis:
    """Mean and covariance of training traces (M, W), one for each group; every neuron counts."""
    rows = rows_of(groups, count)
    scale = usual_scale(variances(traces, rows))
    jitter = steady(jitter, rows, traces.shape[1])
    return Mahalanobis(tuple(spread(traces[own], jitter, scale) if len(own) else None for own in rows))
