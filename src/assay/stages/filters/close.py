"""Near the clean parent, for inputs of any shape."""

from torch import Tensor

from assay.core import norms
from assay.core.cases import Cases
from assay.core.registry import register
from assay.stages.filters.levels import level
from assay.stages.filters.measures import measured
from assay.subjects.bench import Bench


@register("filter")
def close(bench: Bench, cases: Cases, *, most: float | None = None, keep: float | None = None) -> Tensor:
    """At most ``most`` of the seed's length away from it, or the level that keeps the share ``keep`` of the seeds.

    That level is fixed on the seeds (0.6 of them) and holds for the cases. Inputs are taken in the range 0 to 1; a case
    without column ``seed_x`` is its own seed.
    """
    values = measured(bench, _distance, cases.x, cases.parent)
    return values <= level(bench, "close", values, keep=keep, given=most, low=True)


def _distance(x: Tensor, parent: Tensor) -> Tensor:
    """Of the parent's length; a parent of length 0 is its own only near case: any other is infinitely far."""
    away = norms.size(x - parent, "l2")
    return (away / norms.size(parent, "l2")).where(away > 0, away)
