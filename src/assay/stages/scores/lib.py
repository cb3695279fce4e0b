"""LIB: the loss of the reference class and the entropy of the answer, weighed as in an information bottleneck."""

from torch import Tensor

from assay.core import losses
from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("score", paper="TwinFuzz 2026", needs=("prob",))
def lib(bench: Bench, cases: Cases, *, beta: float = 10.0) -> Tensor:
    """The cross-entropy of the reference class plus ``beta`` times the entropy of the target's probabilities.

    The reference is the class that agreement mining found (column ``mined``), else the label.

    Formula: −ln p_r + beta · (−Σᵢ pᵢ·ln pᵢ), r the reference class.
    """
    if beta < 0:
        raise UsageError(f"lib: beta weighs the entropy and must not be negative, got {beta}")
    # Code: probabilities are cut at 1e-10 before the logarithm. Here: both terms come from the logits, which need no
    # cut and keep their slope where the net is sure.
    logits = bench.logits(cases)
    return losses.cross_entropy(logits, cases.reference.to(logits.device)) + beta * losses.entropy(logits)
