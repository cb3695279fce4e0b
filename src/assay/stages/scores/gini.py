"""Gini impurity of the target's probabilities."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("score", paper="DeepGini 2020", needs=("prob",))
def gini(bench: Bench, cases: Cases) -> Tensor:
    """One minus the sum of the squared probabilities: larger where the target is less sure.

    Formula: 1 − Σᵢ pᵢ².
    """
    return impurity(bench.logits(cases))


def impurity(scores: Tensor) -> Tensor:
    """The Gini impurity of each row's softmax, (N,)."""
    share = scores.softmax(1)
    # With r, what the likeliest class leaves to the others, 1 - p·p is 2r - r² - (squares of the others): taken from 1,
    # all cases with r below 6e-8 would tie at 0.
    others = share.scatter(1, share.argmax(1, keepdim=True), 0.0)
    left = others.sum(1)
    return 2 * left - left.square() - others.square().sum(1)
