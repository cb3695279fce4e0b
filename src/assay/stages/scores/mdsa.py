"""Mahalanobis surprise."""

from functools import partial

from torch import Tensor

from assay.core.cases import Cases
from assay.core.registry import register
from assay.stages.surprise.gaussians import fit_gaussians
from assay.stages.surprise.training import check_jitter, surprise
from assay.subjects.bench import Bench


@register("score", paper="Kim 2020", needs=("activation",))
def mdsa(bench: Bench, cases: Cases, *, layers: str = "last", per_class: bool = True, jitter: float = 1e-6) -> Tensor:
    """The Mahalanobis distance of the case's trace to the training traces of the predicted class; not its square.

    Formula: √((a − μ)ᵀ Σ⁻¹ (a − μ)), μ and Σ of the training traces of the predicted class.
    """
    check_jitter("mdsa", jitter)
    fit = partial(fit_gaussians, jitter=jitter)
    return surprise(bench, cases, f"mdsa({jitter})", fit, layers=layers, per_class=per_class)
