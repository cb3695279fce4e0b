"""Margin between the two likeliest classes, in the direction of PCS (prediction confidence score)."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("score", needs=("prob",))
def margin(bench: Bench, cases: Cases) -> Tensor:
    """One minus what the likeliest class leads the second by, in probability: larger where the target is less sure.

    Formula: 1 − (p₁ − p₂), the two largest probabilities.
    """
    share = bench.logits(cases).softmax(1)
    # PCS is minus the lead. One more gives the same order, and is a sum of what others have: the lead itself ties at 1
    # in all cases where these have less than 6e-8.
    others = share.scatter(1, share.argmax(1, keepdim=True), 0.0)
    return others.sum(1) + others.amax(1)
