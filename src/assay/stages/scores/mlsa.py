"""Surprise by a mixture of Gaussians."""

from functools import partial

from torch import Tensor

from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.stages.surprise.mixtures import fit_mixtures
from assay.stages.surprise.training import check_count, check_jitter, surprise
from assay.subjects.bench import Bench


@register("score", paper="Kim and Yoo 2021", needs=("activation",))
def mlsa(
    bench: Bench,
    cases: Cases,
    *,
    layers: str = "last",
    per_class: bool = True,
    components: int = 3,
    most: int = 300,
    jitter: float = 1e-6,
    seed: int = 0,
) -> Tensor:
    """Minus the log-likelihood of the case's trace under a Gaussian mixture fitted to the predicted class.

    Formula: −ln Σⱼ πⱼ·N(a; μⱼ, Σⱼ), a mixture fitted to the training traces of the predicted class.
    """
    check_count("mlsa", "components", components)
    check_count("mlsa", "most", most)
    check_jitter("mlsa", jitter)
    fit = partial(fit_mixtures, components=components, most=most, jitter=jitter, rng=Stream(seed).at("mlsa"))
    name = f"mlsa({components}, {most}, {jitter}, {seed})"
    return surprise(bench, cases, name, fit, layers=layers, per_class=per_class)
