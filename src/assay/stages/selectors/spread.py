"""The best cases of every class."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.stages.selectors.ranking import ranked, scored, turns
from assay.subjects.bench import Bench


@register("selector")
def spread(
    bench: Bench,
    cases: Cases,
    k: int,
    *,
    rng: Stream,
    score: str = "zol",
    largest: bool = True,
    eps: float | None = None,
    norm: str = "",
) -> Tensor:
    """The k cases with the largest score, equally many of each label; what a label lacks goes evenly to the others.

    No paper's: a control that separates the balance of classes from the score.

    Formula: ⌊k/classes⌋ of the largest scores of every label, the rest evenly.
    """
    values = scored(bench, cases, score, eps, norm)
    order = ranked(values, largest)
    turn = turns(cases.y.cpu(), order) + values.isnan() * len(cases)  # NaN after all others
    return order[turn[order].argsort(stable=True)][:k]
