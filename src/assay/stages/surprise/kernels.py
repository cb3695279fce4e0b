"""LSA: minus the logarithm of a density made of a Gaussian kernel at every training trace."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.stages.surprise.groups import BLOCK, blocks, by_group, nowhere, rows_of
from assay.stages.surprise.spread import Spread, spread, steady, usual_scale, variance, variances, varying


@dataclass(frozen=True, slots=True)
class Kernels:
    """The density of one group over its neurons ``kept``: ``points`` (n, w) are its traces, whitened as ``shape`` does.

    All kernels have the shape of the group's covariance, shrunk by Scott's factor n^(-1/(w+4)).
    """

    kept: Tensor
    shape: Spread
    points: Tensor
    block: int

    def __call__(self, traces: Tensor) -> Tensor:
        """Minus the log-density at traces (N, W), (N,)."""
        n, width = self.points.shape
        # In logarithms: the density itself is 0 in float64 some 39 bandwidths away from every point.
        constant = math.log(n) + width / 2 * math.log(2 * math.pi) + self.shape.log_volume()
        parts = [
            constant - _log_sum(self.shape.whiten(traces[rows][:, self.kept]), self.points)
            for rows in blocks(len(traces), max(n, width), self.block)
        ]
        return torch.cat(parts)


def _log_sum(at: Tensor, points: Tensor) -> Tensor:
    """log Σ exp(-½‖at - point‖²) over the points, (N,)."""
    nearness = torch.addmm(points.square().sum(1).div(-2), at, points.T)
    return nearness.logsumexp(1) - at.square().sum(1) / 2


@dataclass(frozen=True, slots=True)
class Likelihood:
    """LSA of traces by their groups."""

    each: tuple[Kernels | None, ...]

    def __call__(self, traces: Tensor, groups: Tensor) -> Tensor:
        def one(group: int, own: Tensor) -> Tensor:
            kernels = self.each[group]
            return nowhere(own) if kernels is None else kernels(own)

        return by_group(one, traces, groups, len(self.each))


def fit_kernels(
    traces: Tensor,
    groups: Tensor,
    count: int,
    *,
    least: float = 1e-5,
    most: int = 300,
    jitter: float = 1e-6,
    block: int = BLOCK,
) -> Likelihood:
    """Densities of training traces (M, W), one for each group.

    Neurons that vary by less than ``least`` in the group are left out, and all but the ``most`` that vary most.
    """
    rows = rows_of(groups, count)
    within = variances(traces, rows)
    jitter = steady(jitter, rows, min(most, traces.shape[1]))

    def one(own: Tensor) -> Kernels:
        kept = varying(variance(own), within, least, most)
        own = own[:, kept]
        about = spread(own, jitter, usual_scale(within[kept]))
        scott = len(own) ** (-1 / (len(kept) + 4))
        shape = Spread(about.mean, about.root * scott)
        return Kernels(kept, shape, shape.whiten(own), block)

    return Likelihood(tuple(one(traces[own]) if len(own) else None for own in rows))
