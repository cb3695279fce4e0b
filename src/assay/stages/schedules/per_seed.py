"""A fixed number of tries for each seed."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("schedule")
def per_seed(bench: Bench, cases: Cases, *, steps: int = 64, failures: int = 1) -> Tensor:
    """A seed is done after ``steps`` cases or ``failures`` failures, whichever comes first."""
    if steps < 1 or failures < 1:
        raise UsageError(f"a seed needs at least one step and one failure to end at, got {steps} and {failures}")
    return (cases.info["step"] >= steps) | (cases.info["hits"] >= failures)
