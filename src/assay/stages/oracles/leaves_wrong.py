"""A target that leaves the class its models agreed on, for another wrong one."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("oracle", paper="TwinFuzz 2026", needs=("label",))
def leaves_wrong(bench: Bench, cases: Cases) -> Tensor:
    """Whether the predicted class differs from the reference (mined, else the label) and from the label."""
    own = bench.logits(cases).argmax(1)
    return (own != cases.reference) & (own != cases.y)
