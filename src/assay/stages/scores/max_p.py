"""What the likeliest class leaves to the others."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("score", needs=("prob",))
def max_p(bench: Bench, cases: Cases) -> Tensor:
    """One minus the probability of the likeliest class: larger where the target is less sure.

    Formula: 1 − maxᵢ pᵢ.
    """
    share = bench.logits(cases).softmax(1)
    # The sum of the others: taken from 1, all cases where it is below 6e-8 would tie at 0.
    return share.scatter(1, share.argmax(1, keepdim=True), 0.0).sum(1)
