"""Likelihood-based surprise."""

from functools import partial

from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.registry import register
from assay.stages.surprise.kernels import fit_kernels
from assay.stages.surprise.training import check_count, check_jitter, surprise
from assay.subjects.bench import Bench


@register("score", paper="SADL 2019", needs=("activation",))
def lsa(
    bench: Bench,
    cases: Cases,
    *,
    layers: str = "last",
    per_class: bool = True,
    variance: float = 1e-5,
    most: int = 300,
    jitter: float = 1e-6,
) -> Tensor:
    """Minus the log-density of the case's trace among training traces of the predicted class: larger is less expected.

    A neuron that varies by less than ``variance`` in the class is left out, and all but the ``most`` that vary most.

    Formula: −ln (1/n · Σᵢ K(a(x) − a(xᵢ))) over the n training traces of the predicted class, K a Gaussian kernel
    of their covariance times Scott's factor squared.
    """
    if variance < 0:
        raise UsageError(f"lsa: variance must not be negative, got {variance}")
    check_count("lsa", "most", most)
    check_jitter("lsa", jitter)
    # Paper: a neuron that hardly varies in one class is left out in all (so its code). Here: in that class only,
    # because with many classes hardly a neuron varies in every one.
    fit = partial(fit_kernels, least=variance, most=most, jitter=jitter)
    return surprise(bench, cases, f"lsa({variance}, {most}, {jitter})", fit, layers=layers, per_class=per_class)
