"""TensorFuzz's mutation: Gaussian noise."""

from torch import Tensor

from assay.core import norms
from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("mutator", paper="TensorFuzz 2019")
def jitter(
    bench: Bench, cases: Cases, *, rng: Rows, sigma: float = 0.2, eps: float | None = None, norm: str = "linf"
) -> Tensor:
    """Gaussian noise of deviation ``sigma``, in halves of the range; with eps, projected to the ball around the seed.

    The paper's inputs lie in [-1, 1], where half of the range is 1; in [0, 1] a sigma of 0.2 is 0.1. Like every eps,
    this one is in the target's own range.

    Formula: x' = clip(Π(x + sigma·w/2 · N(0, 1))), w the width of the bounds.
    """
    if sigma <= 0:
        raise UsageError(f"jitter: sigma must be above 0, got {sigma}")
    low, high = bench.target.spec.bounds
    x = cases.x + sigma * (high - low) / 2 * rng.normal(tuple(cases.x.shape[1:])).to(cases.x.dtype)
    if eps is not None:
        seed = cases.info["seed_x"]
        x = seed + norms.project(x - seed, eps, norms.check(norm, eps))
    return x.clamp_(low, high)
