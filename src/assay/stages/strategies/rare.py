"""Neurons that are active rarely."""

import torch
from torch import Tensor

from assay.core.registry import register
from assay.stages.strategies.drawing import Drawing, Known, Weigh
from assay.subjects.observer import Observer


@register("strategy", paper="DLFuzz 2018", needs=("activation",))
def rare(*, k: int = 5) -> Drawing:
    """k neurons drawn in proportion to how far they fall behind the one active most often (strategy 1 of DLFuzz).

    A neuron is active in a case that covers it, by the recipe's criterion.
    """
    return Drawing(k, _by_lag, counts=True)


def _by_lag(observer: Observer) -> Weigh:
    def weigh(known: Known) -> Tensor:
        lag = known.counts.amax() - known.counts
        return torch.where(lag.any(), lag, 1).float()  # where all are level, any neuron is as good as another

    return weigh
