"""Probability of the true class."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.losses import cross_entropy
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("score", paper="RobOT 2021", needs=("prob",))
def true_prob(bench: Bench, cases: Cases) -> Tensor:
    """The probability that the target gives to the case's label.

    Formula: p_y(x).
    """
    # By way of the loss, whose slope is right also where the target is sure: the softmax has 1 - p, which is 0 there.
    logits = bench.logits(cases)
    return (-cross_entropy(logits, cases.y.to(logits.device))).exp()
