"""Margin between the two likeliest classes."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("score", needs=("logit",))
def margin(bench: Bench, cases: Cases) -> Tensor:
    """The probability of the likeliest class minus that of the second: smaller where the target is less sure."""
    first, second = bench.logits(cases).softmax(1).topk(2, 1).values.unbind(1)
    return first - second
