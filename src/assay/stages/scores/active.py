"""How much a case covers by itself."""

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("score", paper="CAGFuzz 2022", needs=("activation",))
def active(bench: Bench, cases: Cases) -> Tensor:
    """What the case covers of the recipe's criterion by itself: of nc, the number of its active neurons.

    Formula: |{cells of the recipe's criterion that the case alone covers}|.
    """
    coverage = bench.kept.get("coverage")
    if coverage is None:
        raise UsageError(
            "active counts what a case covers, and this recipe has no criterion; give one: --set coverage=nc"
        )
    alone: Tensor = coverage.active(bench.seen(cases))
    return alone.to(torch.float32)
