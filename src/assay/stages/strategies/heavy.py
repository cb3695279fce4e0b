"""Neurons that much weight comes into."""

import math

import torch

from assay.core.errors import UsageError
from assay.core.registry import register
from assay.stages.strategies.activity import incoming
from assay.stages.strategies.drawing import Drawing, Weigh
from assay.subjects.observer import Observer


@register("strategy", paper="DLFuzz 2018", needs=("activation",))
def heavy(*, k: int = 5, share: float = 0.1) -> Drawing:
    """k neurons drawn from the tenth (``share``) with the largest mean incoming weight (strategy 2 of DLFuzz).

    Where that is fewer than k, all of them are pushed.
    """
    if not 0 < share <= 1:
        raise UsageError(f"heavy: share must be above 0 and at most 1, got {share}")

    def plan(observer: Observer) -> Weigh:
        weight = incoming(observer, -torch.inf)
        top = weight.argsort(descending=True, stable=True)[: math.ceil(share * len(weight) - 1e-9)]
        chosen = torch.zeros(len(weight)).index_fill(0, top, 1.0) * weight.isfinite()
        if not bool(chosen.any()):
            raise UsageError("heavy: none of the layers looked at has weights; use another strategy or more layers")
        chosen = chosen.to(observer.targets[0].device)
        return lambda known: chosen

    return Drawing(k, plan)
