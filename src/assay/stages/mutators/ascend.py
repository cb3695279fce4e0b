"""A step uphill of the recipe's objective."""

from torch import Tensor

from assay.core import norms
from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.core.shapes import column
from assay.subjects.bench import Bench


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
) -> Tensor:
    """``x + lr·u·slope`` with u uniform between low and high; with eps, projected to the ball around the seed.

    The column ``slope`` is the objective's gradient where the case was last looked at, 0 where nobody has looked yet.
    """
    if "slope" not in cases.info:
        raise UsageError(
            "ascend climbs the recipe's objective, and this recipe has none; give one: --set objective=fol"
        )
    u = column(rng.uniform((1,), low, high).squeeze(1), cases.x).to(cases.x.dtype)
    x = cases.x + lr * u * cases.info["slope"]
    if eps is not None:
        seed = cases.info["seed_x"]
        x = seed + norms.project(x - seed, eps, norms.check(norm, eps))
    return x.clamp_(*bench.target.spec.bounds)
