"""Entropy of the target's probabilities."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("score", needs=("logit",))
def entropy(bench: Bench, cases: Cases) -> Tensor:
    """The entropy of the target's probabilities, in nats: larger where it is less sure."""
    # Through the logarithm of p, where p·log p has slope 0 at p = 0; through p itself it has slope -inf.
    log = bench.logits(cases).log_softmax(1)
    return -(log.exp() * log).sum(1)
