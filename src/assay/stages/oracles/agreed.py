"""Models that err alike."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("oracle", paper="TwinFuzz 2026", needs=("label", "twins"))
def agreed(bench: Bench, cases: Cases) -> Tensor:
    """Whether the target and all other models give one class, and not that of the clean parent."""
    # No label is asked for: an unlabelled seed carries the class that the models gave to its clean parent.
    own = bench.logits(cases).argmax(1)
    return (bench.others(cases).argmax(2).to(own.device) == own[:, None]).all(1) & (own != cases.y)
