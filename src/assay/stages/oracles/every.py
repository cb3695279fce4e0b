"""Every case, failing or not: for recipes that make a pool to be put in order."""

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("oracle", paper="Rahman and Eisty 2025 (LBT)")
def every(bench: Bench, cases: Cases) -> Tensor:
    """Always: attacks that failed are kept too, and which of them the target gets wrong is told beside it."""
    return torch.ones(len(cases), dtype=torch.bool, device=cases.x.device)
