"""Zero-order loss."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.losses import cross_entropy
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("score", paper="RobOT 2021", needs=("prob",))
def zol(bench: Bench, cases: Cases) -> Tensor:
    """The cross-entropy of each case: larger is stronger, among cases of one seed.

    Formula: −ln p_y(x).
    """
    logits = bench.logits(cases)
    return cross_entropy(logits, cases.reference.to(logits.device))
