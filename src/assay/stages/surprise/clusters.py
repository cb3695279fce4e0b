"""MMDSA: Mahalanobis distance to the nearest cluster of the training traces of a group."""

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.randomness import Stream
from assay.stages.surprise.gaussians import Mahalanobis
from assay.stages.surprise.groups import by_group, rows_of
from assay.stages.surprise.spread import ENOUGH, Spread, mean_of, spread, steady, usual_scale, variances

SAMPLE = 1000  # traces by which clusterings are compared: the silhouette asks for the distance of every pair


@dataclass(frozen=True, slots=True)
class Clusters:
    """MMDSA of traces by their groups: ``centres`` (k, W) of each group, and the spread of every cluster."""

    centres: tuple[Tensor, ...]
    distance: Mahalanobis

    def __call__(self, traces: Tensor, groups: Tensor) -> Tensor:
        return self.distance(traces, _cluster(self.centres, traces, groups))


def _cluster(centres: tuple[Tensor, ...], traces: Tensor, groups: Tensor) -> Tensor:
    """The cluster of each trace, numbered through all groups: that of the nearest centre of its group, (N,)."""
    most = max(len(own) for own in centres)

    def one(group: int, own: Tensor) -> Tensor:
        if not len(centres[group]):
            return own.new_zeros(len(own), dtype=torch.int64)
        return _nearest(own, centres[group])

    return groups * most + by_group(one, traces, groups, len(centres)).long()


def _nearest(own: Tensor, centres: Tensor) -> Tensor:
    away = torch.cdist(own.detach().double(), centres, compute_mode="donot_use_mm_for_euclid_dist")
    return away.argmin(1)


def fit_clusters(
    traces: Tensor, groups: Tensor, count: int, *, clusters: int = 5, jitter: float = 1e-6, rng: Stream
) -> Clusters:
    """2 to ``clusters`` clusters in each group, as many as the silhouette likes best; one where there is no choice.

    A cluster of too few traces takes the covariance that the clusters of its group have together.
    """
    rows = rows_of(groups, count)
    centres = tuple(_centres(traces[own], clusters, rng.at(group)) for group, own in enumerate(rows))
    most = max(len(own) for own in centres)
    inside = rows_of(_cluster(centres, traces, groups), count * most)
    scale = usual_scale(variances(traces, inside))
    jitter = steady(jitter, rows, traces.shape[1])
    each: list[Spread | None] = []
    for own in rows:
        parts = [traces[cluster] for cluster in inside[len(each) : len(each) + most]]
        if len(own):
            away = torch.cat([part.double() - mean_of(part) for part in parts if len(part)])
            shared = spread(away, jitter, scale)
        each += [_spread(part, shared, jitter, scale) if len(part) else None for part in parts]
    return Clusters(centres, Mahalanobis(tuple(each)))


def _spread(part: Tensor, shared: Spread, jitter: float, scale: float) -> Spread:
    if len(part) >= ENOUGH * part.shape[1]:
        return spread(part, jitter, scale)
    return Spread(mean_of(part), shared.root)


def _centres(own: Tensor, clusters: int, rng: Stream) -> Tensor:
    """The centres of the best clustering by k-means, (k, W) in float64; (0, W) of no traces."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import silhouette_score

    if not len(own):
        return own.double()
    best, centres = -torch.inf, mean_of(own)[None]
    values = own.double().cpu().numpy()
    sample = torch.randperm(len(own), generator=rng.at("sample").generator())[:SAMPLE].numpy()
    seed = int(torch.randint(2**31 - 1, (), generator=rng.at("start").generator()))
    for k in range(2, min(clusters, len(own) - 1) + 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct traces than clusters
            found = KMeans(k, n_init=3, random_state=seed).fit(values)
        labels = found.labels_[sample]
        if not 1 < len(set(labels)) < len(labels):
            continue
        score = float(silhouette_score(values[sample], labels))
        if score > best:
            best, centres = score, torch.as_tensor(found.cluster_centers_, dtype=torch.float64, device=own.device)
    return centres[_nearest(own, centres).unique()]  # of copies of one trace all but one stay without any
