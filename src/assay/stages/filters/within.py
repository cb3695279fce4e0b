"""Not too far from the seed."""

from torch import Tensor

from assay.core import norms
from assay.core.cases import Cases
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("filter")
def within(
    bench: Bench, cases: Cases, *, relative: float | None = 0.5, eps: float | None = None, norm: str = "linf"
) -> Tensor:
    """At most ``relative`` of the seed's Euclidean length away from it, and with eps, inside that ball around it."""
    away = cases.x - cases.info["seed_x"]
    fits = norms.size(away, "l2") < float("inf")
    if relative is not None:
        fits &= norms.size(away, "l2") <= relative * norms.size(cases.info["seed_x"], "l2")
    if eps is not None:
        fits &= norms.size(away, norms.check(norm, eps)) <= eps * (1 + 1e-5) + 1e-7
    return fits
