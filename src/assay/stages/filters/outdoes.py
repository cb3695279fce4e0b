"""A case that scores higher than the one it was made of."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("filter", paper="CAGFuzz 2022")
def outdoes(bench: Bench, cases: Cases, *, score: str = "active") -> Tensor:
    """The score is above that of the parent: with ``active``, the case activates more neurons than its parent."""
    parent = cases.info.get(f"parent_{score}")
    if parent is None or score not in cases.info:
        raise UsageError(
            f"outdoes compares {score!r} with the parent's: the recipe must note that score (--set score={score}) and "
            "have a pool of parents (--set schedule=pool)"
        )
    return cases.info[score] > parent
