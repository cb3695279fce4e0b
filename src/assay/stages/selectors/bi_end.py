"""Bi-end selection (BE-ST): both ends of the ranking."""

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.stages.selectors.ranking import ranked, scored
from assay.subjects.bench import Bench


@register("selector", paper="RobOT 2021")
def bi_end(
    bench: Bench,
    cases: Cases,
    k: int,
    *,
    rng: Stream,
    score: str = "fol",
    eps: float | None = None,
    norm: str = "",
) -> Tensor:
    """Half of the k cases from the smallest scores, the other half (one more where k is odd) from the largest.

    Formula: order by score; the ⌊k/2⌋ smallest and the ⌈k/2⌉ largest.
    """
    values = scored(bench, cases, score, eps, norm)
    order = ranked(values, largest=False)
    known = len(cases) - int(values.isnan().sum())
    order, unknown = order[:known], order[known:]
    low = min(k, known) // 2
    high = min(k, known) - low
    return torch.cat((order[:low], order[known - high :], unknown[: k - low - high]))
