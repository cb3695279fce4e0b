"""Distance-based surprise."""

from functools import partial

from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.stages.surprise.distances import fit_distances
from assay.stages.surprise.training import surprise
from assay.subjects.bench import Bench


@register("score", paper="SADL 2019", needs=("activation",))
def dsa(bench: Bench, cases: Cases, *, layers: str = "last", share: float = 1.0, seed: int = 0) -> Tensor:
    """How far the case's trace is from the nearest of its predicted class, by how far that one is from other classes.

    Only a ``share`` of the training traces of each class is compared with, drawn by ``seed``; 0.3 loses little.

    Formula: ‖a(x) − a(x_a)‖ / ‖a(x_a) − a(x_b)‖: x_a the nearest training trace of the predicted class, x_b the
    nearest to x_a of another class.
    """
    if not 0 < share <= 1:
        raise UsageError(f"dsa: share is the part of the training traces to use, above 0 and at most 1, got {share}")
    fit = partial(fit_distances, share=share, rng=Stream(seed).at("dsa"))
    return surprise(bench, cases, f"dsa({share}, {seed})", fit, layers=layers)
