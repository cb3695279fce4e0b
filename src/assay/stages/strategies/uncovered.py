"""Neurons that nothing has covered yet."""

import torch
from torch import Tensor

from assay.core.errors import UsageError
from assay.core.registry import register
from assay.stages.strategies.activity import SEED_COVERED, active, covered
from assay.stages.strategies.drawing import Drawing, Known, Weigh
from assay.subjects.observer import Observer

LAST = 1e-30  # the weight of covered neurons: they are drawn when no other is left
BY = ("all", "seed")


@register("strategy", paper="DeepXplore 2017", needs=("activation",))
def uncovered(*, k: int = 1, by: str = "all") -> Drawing:
    """k neurons of each net drawn from those not covered yet; from all of them, once too few are left.

    Not covered by ``all`` cases of the campaign, or by those of the same ``seed``. Of a criterion with several cells a
    neuron, one counts as covered by all when all of its cells are.
    """
    if by not in BY:
        raise UsageError(f"uncovered: by is one of {', '.join(BY)}; got {by!r}")
    return Drawing(k, _new_ones if by == "all" else _new_to_seed, each=True, of_seed=by == "seed")


def _new_ones(observer: Observer) -> Weigh:
    return lambda known: torch.where(covered(known.coverage, observer.neurons), LAST, 1.0)


def _new_to_seed(observer: Observer) -> Weigh:
    def weigh(known: Known) -> Tensor:
        # What the seed itself covers is noted after this, its first look.
        done = known.lanes.info[SEED_COVERED] | active(known.coverage, known.seen)
        return torch.where(done, LAST, 1.0)

    return weigh
