"""Coverage-total: the cases that cover most by themselves."""

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.stages.coverage import Coverage
from assay.stages.selectors.covering import begun, seen_by
from assay.stages.selectors.ranking import ranked
from assay.subjects.bench import Bench
from assay.subjects.observer import Seen


@register("selector", needs=("activation",))
def ctm(bench: Bench, cases: Cases, k: int, *, rng: Stream, criterion: str = "nbc", layers: str = "auto") -> Tensor:
    """The k cases that cover most of a criterion each by itself, best first; equal ones in the order of rows.

    Formula: the k largest |cells(case)|.
    """
    if not len(cases):
        return torch.empty(0, dtype=torch.int64)
    coverage, observer = begun(bench, criterion, layers)
    return ranked(alone(bench, coverage, seen_by(bench, observer, cases)), largest=True)[:k]


def alone(bench: Bench, coverage: Coverage, seen: Seen) -> Tensor:
    """How much each case covers by itself, float64 on the CPU, (N,)."""
    return bench.chunks.map(lambda rows: coverage.active(seen[rows]).cpu().double(), torch.arange(len(seen)))
