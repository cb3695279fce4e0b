"""A score that rises."""

from torch import Tensor

from assay.core import norms
from assay.core.cases import Cases
from assay.core.registry import register
from assay.stages.filters.within import centre_of
from assay.subjects.bench import Bench


@register("filter", paper="RobOT 2021")
def rises(
    bench: Bench,
    cases: Cases,
    *,
    score: str = "fol",
    strict: bool = False,
    within: float | None = None,
    moved: float = 1e-6,
    of: str = "seed",
) -> Tensor:
    """The score is at least the best one kept of the same seed so far (above it where ``strict``).

    ``within`` also asks for a distance below that share of the seed's length. A case that moved less than ``moved`` of
    the seed's length from the one it came from is refused: where nothing moves any more, the rule would hold for ever.
    With ``of=start`` the seed is what the search began from, where that is another input than the clean one.
    """
    now, best = cases.info[score], cases.info[f"best_{score}"]
    centre = centre_of(cases, of)
    length = norms.size(centre, "l2")
    good = (now > best) if strict else (now >= best)
    if within is not None:
        good &= norms.size(cases.x - centre, "l2") < within * length
    return good & (norms.size(cases.x - cases.info["before_x"], "l2") > moved * length)
