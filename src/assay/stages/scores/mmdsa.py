"""Mahalanobis surprise among clusters."""

from functools import partial

from torch import Tensor

from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.stages.surprise.clusters import fit_clusters
from assay.stages.surprise.training import check_count, check_jitter, surprise
from assay.subjects.bench import Bench


@register("score", paper="Kim and Yoo 2021", needs=("activation",))
def mmdsa(
    bench: Bench,
    cases: Cases,
    *,
    layers: str = "last",
    per_class: bool = True,
    clusters: int = 5,
    jitter: float = 1e-6,
    seed: int = 0,
) -> Tensor:
    """The Mahalanobis distance of the case's trace to the nearest cluster of the predicted class.

    Each class has 2 to ``clusters`` clusters by k-means, as many as their silhouette likes best.

    Formula: minⱼ √((a − μⱼ)ᵀ Σⱼ⁻¹ (a − μⱼ)) over the clusters j of the predicted class.
    """
    check_count("mmdsa", "clusters", clusters, 2)
    check_jitter("mmdsa", jitter)
    fit = partial(fit_clusters, clusters=clusters, jitter=jitter, rng=Stream(seed).at("mmdsa"))
    name = f"mmdsa({clusters}, {jitter}, {seed})"
    return surprise(bench, cases, name, fit, layers=layers, per_class=per_class)
