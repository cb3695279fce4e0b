"""Score of the true class."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("score", paper="ADAPT 2020", needs=("logit",))
def true_logit(bench: Bench, cases: Cases) -> Tensor:
    """The score before the softmax that the target gives to the case's label.

    Formula: z_y(x).
    """
    logits = bench.logits(cases)
    return logits.gather(1, cases.y.to(logits.device)[:, None]).squeeze(1)
