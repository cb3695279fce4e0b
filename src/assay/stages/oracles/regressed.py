"""What an older version of the model could do."""

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.registry import register
from assay.subjects.bench import Bench
from assay.subjects.target import require


@register("oracle", needs=("label", "siblings"))
def regressed(bench: Bench, cases: Cases, *, lead: float = 0.0) -> Tensor:
    """Whether the other models, older versions of the target, all give the label and the target does not.

    With ``lead`` both are to be sure of it: in each version the label leads the next class by that much probability,
    and in the target another class leads the label. The borders of any two models differ by a hair, and what lies
    between them says nothing about either.
    """
    if not 0 <= lead < 1:
        raise UsageError(f"regressed: lead is a difference of probabilities from 0 to below 1, got {lead}")
    own = bench.logits(cases)
    label, theirs = cases.y.to(own.device), bench.others(cases).to(own.device)
    right, wrong = (theirs.argmax(2) == label[:, None]).all(1), own.argmax(1) != label
    if lead:
        for net in (bench.target, *bench.roles.values()):
            require(net, ("prob",), "oracle 'regressed' with a lead (--set oracle.lead=0)")
        right &= (_lead(theirs, label[:, None].expand(-1, theirs.shape[1])) >= lead).all(1)
        wrong &= _lead(own, label) <= -lead
    return right & wrong


def _lead(scores: Tensor, label: Tensor) -> Tensor:
    """The label's probability less that of the likeliest other class, (…)."""
    share = scores.softmax(-1)
    return share.gather(-1, label[..., None])[..., 0] - share.scatter(-1, label[..., None], -torch.inf).amax(-1)
