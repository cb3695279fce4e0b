"""How far the target stands from the other models about the class they agreed on."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("score", paper="DeepXplore 2017", needs=("logit", "siblings"))
def disagreement(bench: Bench, cases: Cases, *, weight: float = 1.0) -> Tensor:
    """The scores that the other models give to the case's label, less ``weight`` times the target's own.

    Formula: Σ_{other models m} z^m_y(x) − weight · z_y(x), z the logits.
    """
    # Paper: the probability of the class, and any of the models may be the odd one out. Here: scores before the
    # softmax, as its code has them, because probabilities have no slope where a model is sure; and the target is the
    # odd one out, because it is the model under test. To have another one be it, make that one the target.
    logits = bench.logits(cases)
    label = cases.y.to(logits.device)[:, None]
    theirs = bench.others(cases).to(logits.device)
    shared = theirs.gather(2, label[:, None].expand(-1, theirs.shape[1], 1)).sum((1, 2))
    return shared - weight * logits.gather(1, label).squeeze(1)
