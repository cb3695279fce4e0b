"""A score that has come down to nothing."""

from torch import Tensor

from assay.core import norms
from assay.core.cases import Cases
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("filter", paper="RobOT 2021")
def below(bench: Bench, cases: Cases, *, score: str = "fol", level: float = 1e-18, moved: float = 1e-6) -> Tensor:
    """The score is below ``level``, at a case that moved at least ``moved`` of the seed's length in this step."""
    away = norms.size(cases.x - cases.info["before_x"], "l2")
    return (cases.info[score] < level) & (away > moved * norms.size(cases.info["seed_x"], "l2"))
