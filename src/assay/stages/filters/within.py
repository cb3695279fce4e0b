"""Not too far from the seed."""

from torch import Tensor

from assay.core import norms
from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.registry import register
from assay.subjects.bench import Bench

OF = ("seed", "start")


@register("filter")
def within(
    bench: Bench,
    cases: Cases,
    *,
    relative: float | None = 0.5,
    eps: float | None = None,
    norm: str = "linf",
    of: str = "seed",
) -> Tensor:
    """At most ``relative`` of the seed's Euclidean length away from it, and with eps, inside that ball around it.

    With ``of=start`` not of the seed but of what the search began from, where that is another input.
    """
    centre = centre_of(cases, of)
    away = cases.x - centre
    fits = norms.size(away, "l2") < float("inf")
    if relative is not None:
        fits &= norms.size(away, "l2") <= relative * norms.size(centre, "l2")
    if eps is not None:
        fits &= norms.size(away, norms.check(norm, eps)) <= eps * (1 + 1e-5) + 1e-7
    return fits


def centre_of(cases: Cases, of: str) -> Tensor:
    """What distances are measured from: the clean ``seed``, or the ``start`` of the search, the seed unless noted."""
    if of not in OF:
        raise UsageError(f"distances are of one of {', '.join(OF)}; got {of!r}")
    return cases.info.get("start_x", cases.parent) if of == "start" else cases.parent
