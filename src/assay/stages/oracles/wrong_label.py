"""The plainest oracle: the target's class is not the seed's."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("oracle", needs=("label",))
def wrong_label(bench: Bench, cases: Cases) -> Tensor:
    """Whether the predicted class differs from the reference label ``y``."""
    return bench.logits(cases).argmax(1) != cases.y
