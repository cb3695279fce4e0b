"""A target that leaves the class its models agreed on."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("oracle", paper="public code of TwinFuzz", needs=("label",))
def leaves(bench: Bench, cases: Cases) -> Tensor:
    """Whether the predicted class differs from the reference: the class that was mined, else the label."""
    # Code: this alone is a failure. Here: leaves_wrong is, because a mined class is wrong already, and what leaves it
    # may have become right; this one is counted beside it.
    return bench.logits(cases).argmax(1) != cases.reference
