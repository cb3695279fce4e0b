"""Neurons that are active often."""

import torch

from assay.core.registry import register
from assay.stages.strategies.drawing import Drawing, Weigh
from assay.subjects.observer import Observer


@register("strategy", paper="DLFuzz 2018", needs=("activation",))
def often(*, k: int = 5) -> Drawing:
    """k neurons drawn in proportion to how often they were active (strategy 0 of DLFuzz).

    A neuron is active in a case that covers it, by the recipe's criterion.
    """
    return Drawing(k, _by_count, counts=True)


def _by_count(observer: Observer) -> Weigh:
    # Before anything was active, any neuron is as good as another.
    return lambda known: torch.where(known.counts.any(), known.counts, 1).float()
