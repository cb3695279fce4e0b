"""A step uphill of the recipe's objective."""

from torch import Tensor

from assay.core import norms
from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.core.shapes import column
from assay.subjects.bench import Bench

SCALES = ("none", "rms")


@register("mutator", paper="RobOT 2021", needs=("grad",), gradients=1)
def ascend(
    bench: Bench,
    cases: Cases,
    *,
    rng: Rows,
    lr: float = 0.1,
    low: float = 0.5,
    high: float = 1.5,
    eps: float | None = None,
    norm: str = "linf",
    scale: str = "none",
) -> Tensor:
    """``x + lr·u·slope`` with u uniform between low and high; with eps, projected to the ball around the seed.

    The column ``slope`` is the objective's gradient where the case was last looked at, 0 where nobody has looked yet.
    ``scale=rms`` divides it by its root mean square, so that lr is how far a pixel moves (DeepXplore, DLFuzz).

    Formula: x' = clip(Π(x + lr·u·w²·∇objective)), u uniform in [low, high], w the width of the bounds; with
    scale=rms x' = clip(Π(x + lr·u·w·∇/rms(∇))).
    """
    if scale not in SCALES:
        raise UsageError(f"ascend: scale is one of {', '.join(SCALES)}; got {scale!r}")
    if "slope" not in cases.info:
        raise UsageError("ascend climbs an objective, and there is none; give one, such as objective=fol")
    u = column(rng.uniform((1,), low, high).squeeze(1), cases.x).to(cases.x.dtype)
    slope, span = cases.info["slope"], bench.target.spec.bounds[1] - bench.target.spec.bounds[0]
    # lr is the papers', whose inputs lie in [0, 1]: in a range twice as wide the same step is twice as long, and there
    # the slope is half as steep.
    x = cases.x + lr * u * (span * by_rms(slope) if scale == "rms" else span**2 * slope)
    if eps is not None:
        seed = cases.info["seed_x"]
        x = seed + norms.project(x - seed, eps, norms.check(norm, eps))
    return x.clamp_(*bench.target.spec.bounds)


def by_rms(slope: Tensor) -> Tensor:
    """The slope of each case divided by its root mean square; a vanishing one stays small."""
    return slope / (column(slope.flatten(1).square().mean(1).sqrt(), slope) + 1e-5)
