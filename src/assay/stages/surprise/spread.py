"""Where the traces of one group lie and how they spread: mean and covariance."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.errors import UsageError
from assay.stages.surprise.groups import BLOCK, blocks

ENOUGH = 2  # traces a neuron: with fewer the covariance has directions with hardly any spread, by chance
FEW = 0.1  # jitter where there are fewer


@dataclass(frozen=True, slots=True)
class Spread:
    """The ``mean`` (W,) of a group and the lower Cholesky factor ``root`` (W, W) of its covariance, in float64."""

    mean: Tensor
    root: Tensor

    def whiten(self, traces: Tensor) -> Tensor:
        """The traces as the group sees them: mean 0 and covariance 1, float64."""
        away = traces.double() - self.mean
        white: Tensor = torch.linalg.solve_triangular(self.root.T, away, upper=True, left=False)
        return white

    def log_volume(self) -> Tensor:
        """Half the logarithm of the determinant of the covariance."""
        return self.root.diagonal().log().sum()


def spread(traces: Tensor, jitter: float, scale: float) -> Spread:
    """Mean and covariance of traces (n, W), n at least 1.

    To every variance ``jitter`` times their mean is added, of a group with n ≤ W at least FEW times.
    ``scale`` takes the place of the mean variance where a group has none of its own, such as one of a single trace.
    """
    mean = mean_of(traces)
    covariance = covariance_about(mean, traces)
    usual = float(covariance.diagonal().mean()) or scale
    covariance.diagonal().add_((jitter if len(traces) > len(mean) else max(jitter, FEW)) * usual)
    return Spread(mean, root_of(covariance))


def steady(jitter: float, rows: Sequence[Tensor], width: int) -> float:
    """The jitter for all groups: at least FEW where they have too few traces for ``width`` neurons, on average.

    One for all, because densities compare only where they are made alike.
    """
    sizes = [len(own) for own in rows if len(own)]
    return jitter if sum(sizes) >= ENOUGH * width * len(sizes) else max(jitter, FEW)


def mean_of(traces: Tensor) -> Tensor:
    """The mean (W,) of traces, in float64."""
    # From the first trace on, so that the mean of equal numbers is exactly theirs and what is constant has variance 0.
    first = traces[0].double()
    total = torch.zeros_like(first)
    for rows in blocks(len(traces), traces.shape[1], BLOCK):
        total += (traces[rows].double() - first).sum(0)
    return first + total / len(traces)


def covariance_about(mean: Tensor, traces: Tensor, block: int = BLOCK) -> Tensor:
    """The covariance (W, W) of traces, in float64; divided by n - 1, zero for one trace."""
    total = traces.new_zeros((traces.shape[1],) * 2, dtype=torch.float64)
    for rows in blocks(len(traces), traces.shape[1], block):
        away = traces[rows].double() - mean
        total.addmm_(away.T, away)
    return total.div_(max(1, len(traces) - 1))


def root_of(covariance: Tensor) -> Tensor:
    root: Tensor
    root, failed = torch.linalg.cholesky_ex(covariance)
    if int(failed):
        raise UsageError("the covariance of the training traces is singular; give a larger jitter, such as 1e-6")
    return root


def variances(traces: Tensor, rows: Sequence[Tensor]) -> Tensor:
    """The variance of each neuron within the groups, all taken together, (W,) in float64."""
    total = traces.new_zeros(traces.shape[1], dtype=torch.float64)
    for own in rows:
        if len(own) > 1:
            total += variance(traces[own]) * (len(own) - 1)
    free = sum(len(own) - 1 for own in rows if len(own))
    return total / max(1, free)


def variance(traces: Tensor) -> Tensor:
    """The variance of each neuron, (W,) in float64; zero for one trace."""
    mean = mean_of(traces)
    total = torch.zeros_like(mean)
    for rows in blocks(len(traces), traces.shape[1], BLOCK):
        total += (traces[rows].double() - mean).square().sum(0)
    return total / max(1, len(traces) - 1)


def usual_scale(within: Tensor) -> float:
    """The mean variance within groups; 1 where nothing varies, or nothing is there."""
    return float(within.mean()) or 1.0 if len(within) else 1.0


def varying(own: Tensor, within: Tensor, least: float, most: int) -> Tensor:
    """The neurons to keep, in their order: variance at least ``least``, and of these the ``most`` of highest variance.

    A group where none varies keeps those that vary within other groups; where none does either, all.
    """
    for variance in (own, within, torch.full_like(own, torch.inf)):
        kept = (variance >= least).nonzero().flatten()
        if len(kept):
            break
    return kept[variance[kept].argsort(descending=True, stable=True)[:most]].sort().values
