"""The oracle of differential testing: models of one task that differ."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("oracle", paper="DeepXplore 2017", needs=("label", "siblings"))
def disagree(bench: Bench, cases: Cases) -> Tensor:
    """Whether the target and the other models do not all give the same class; nobody asks for a label."""
    own = bench.logits(cases).argmax(1)
    return (bench.others(cases).argmax(2).to(own.device) != own[:, None]).any(1)
