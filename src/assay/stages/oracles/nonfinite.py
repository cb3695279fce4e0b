"""Answers that are no numbers."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("oracle", paper="TensorFuzz 2019", needs=("logit",))
def nonfinite(bench: Bench, cases: Cases) -> Tensor:
    """Whether the target answers with NaN or infinity, and nothing else."""
    return ~bench.logits(cases).isfinite().all(1)
