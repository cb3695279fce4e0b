"""A fixed number of tries for each seed."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("schedule")
def per_seed(bench: Bench, cases: Cases, *, steps: int = 64, failures: int = 1) -> Tensor:
    """A seed is done after ``steps`` cases or ``failures`` failures, whichever comes first."""
    return (cases.info["step"] >= steps) | (cases.info["hits"] >= failures)
