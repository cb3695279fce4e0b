"""The best cases by one score."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.stages.selectors.ranking import ranked, scored
from assay.subjects.bench import Bench


@register("selector", paper="DeepGini 2020")
def top(
    bench: Bench,
    cases: Cases,
    k: int,
    *,
    rng: Stream,
    score: str = "gini",
    largest: bool = True,
    eps: float | None = None,
    norm: str = "",
) -> Tensor:
    """The k cases with the largest score (the smallest with ``largest=false``), best first.

    Formula: the k largest scores.
    """
    return ranked(scored(bench, cases, score, eps, norm), largest)[:k]
