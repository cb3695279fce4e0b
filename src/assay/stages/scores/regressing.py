"""How near a case is to one that an older version gets right and the target wrong."""

from torch import Tensor
from torch.nn import functional as F

from assay.core.cases import Cases
from assay.core.losses import log_odds
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("score", needs=("prob", "siblings"))
def regressing(bench: Bench, cases: Cases, *, weight: float = 1.0, sure: float = 2.0) -> Tensor:
    """The target's log-odds against the label, less ``weight`` times the loss of the older versions.

    Formula: min(o(x), sure) - weight · sum over versions v of log(1 + exp(o_v(x) + sure)), with o the log of how much
    likelier all other classes are together than the label. Above ``sure`` the target is wrong enough and only the
    versions count; their loss is 0 where they are surely right, so that far from their borders the target alone leads.
    """
    logits = bench.logits(cases)
    label = cases.y.to(logits.device)
    theirs = bench.others(cases).to(logits.device)
    old = log_odds(theirs.flatten(0, 1), label.repeat_interleave(theirs.shape[1]))
    return log_odds(logits, label).clamp_max(sure) - weight * F.softplus(old.view(theirs.shape[:2]) + sure).sum(1)
