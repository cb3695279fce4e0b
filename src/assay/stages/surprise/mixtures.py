"""MLSA: minus the log-likelihood of a Gaussian mixture fitted to the training traces of a group."""

import math
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.randomness import Stream
from assay.stages.surprise.groups import by_group, nowhere, rows_of
from assay.stages.surprise.spread import FEW, Spread, root_of, spread, steady, usual_scale, variance, variances, varying


@dataclass(frozen=True, slots=True)
class Mixture:
    """Gaussians over the neurons ``kept``, with the logarithms of their weights (k,)."""

    kept: Tensor
    weights: Tensor
    parts: tuple[Spread, ...]

    def __call__(self, traces: Tensor) -> Tensor:
        """Minus the log-likelihood of traces (N, W), (N,)."""
        some = traces[:, self.kept]
        size = len(self.kept) / 2 * math.log(2 * math.pi)
        each = [-part.whiten(some).square().sum(1) / 2 - part.log_volume() - size for part in self.parts]
        return -(torch.stack(each, 1) + self.weights).logsumexp(1)


@dataclass(frozen=True, slots=True)
class Mixtures:
    """MLSA of traces by their groups."""

    each: tuple[Mixture | None, ...]

    def __call__(self, traces: Tensor, groups: Tensor) -> Tensor:
        def one(group: int, own: Tensor) -> Tensor:
            mixture = self.each[group]
            return nowhere(own) if mixture is None else mixture(own)

        return by_group(one, traces, groups, len(self.each))


def fit_mixtures(
    traces: Tensor,
    groups: Tensor,
    count: int,
    *,
    components: int = 3,
    most: int = 300,
    jitter: float = 1e-6,
    rng: Stream,
) -> Mixtures:
    """Mixtures of ``components`` Gaussians with full covariances, one for each group, over its ``most`` neurons.

    A group has no more components than half its traces, nor than distinct ones.
    """
    rows = rows_of(groups, count)
    within = variances(traces, rows)
    jitter = steady(jitter, rows, components * min(most, traces.shape[1]))

    def one(group: int, own: Tensor) -> Mixture:
        kept = varying(variance(own), within, 0.0, most)
        scale = usual_scale(within[kept])
        return _mixed(own[:, kept], kept, components, jitter, scale, rng.at(group))

    return Mixtures(tuple(one(g, traces[own]) if len(own) else None for g, own in enumerate(rows)))


def _mixed(own: Tensor, kept: Tensor, components: int, jitter: float, scale: float, rng: Stream) -> Mixture:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    components = min(components, len(own) // 2, len(own.unique(dim=0)))
    if components < 2:
        return Mixture(kept, own.new_zeros(1, dtype=torch.float64), (spread(own, jitter, scale),))
    usual = float(variance(own).mean()) or scale
    little = (jitter if len(own) > components * len(kept) else max(jitter, FEW)) * usual
    seed = int(torch.randint(2**31 - 1, (), generator=rng.generator()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the best of 100 rounds is what the published scores use
        found = GaussianMixture(components, reg_covar=little, random_state=seed).fit(own.double().cpu().numpy())
    weights, means, covariances = (
        torch.as_tensor(value, dtype=torch.float64, device=own.device)
        for value in (found.weights_, found.means_, found.covariances_)
    )
    parts = tuple(Spread(mean, root_of(covariance)) for mean, covariance in zip(means, covariances, strict=True))
    return Mixture(kept, weights.log(), parts)
