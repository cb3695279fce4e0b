"""Near the clean parent, for inputs of any shape."""

from torch import Tensor

from assay.core import norms
from assay.core.cases import Cases
from assay.core.registry import register
from assay.stages.filters.levels import check_share, level
from assay.subjects.bench import Bench


@register("filter")
def close(bench: Bench, cases: Cases, *, most: float | None = None, keep: float = 0.6) -> Tensor:
    """At most ``most`` of the seed's length away from it, or the level that keeps the share ``keep`` of the seeds.

    That level is fixed on the first cases. A case without column ``seed_x`` is its own seed.
    """
    check_share("close", keep)
    away, length = norms.size(cases.x - cases.parent, "l2"), norms.size(cases.parent, "l2")
    # A seed of length 0 is its own only near case: any other is infinitely far.
    values = (away / length).where(away > 0, away)
    return values <= (level(bench, "close", values, keep, low=True) if most is None else most)
