"""Any neurons."""

import torch

from assay.core.registry import register
from assay.stages.strategies.drawing import Drawing, Weigh
from assay.subjects.observer import Observer


@register("strategy", needs=("activation",))
def random(*, k: int = 10) -> Drawing:
    """k neurons drawn from all: the control that a strategy must beat."""
    return Drawing(k, _alike)


def _alike(observer: Observer) -> Weigh:
    ones = torch.ones(observer.neurons, device=observer.targets[0].device)
    return lambda known: ones
