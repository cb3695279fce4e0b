"""Entropy of the target's probabilities."""

from torch import Tensor

from assay.core import losses
from assay.core.cases import Cases
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("score", needs=("prob",))
def entropy(bench: Bench, cases: Cases) -> Tensor:
    """The entropy of the target's probabilities, in nats: larger where it is less sure.

    Formula: −Σᵢ pᵢ·ln pᵢ.
    """
    return losses.entropy(bench.logits(cases))
