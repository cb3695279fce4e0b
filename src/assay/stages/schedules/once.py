"""One case a seed, and no second: for a mutator that would make the same again."""

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.registry import register
from assay.stages.schedules import Next, standing


@register("schedule")
def once() -> "Once":
    """A seed is done after one case; what a second cycle over the seeds makes is not stored."""
    return Once()


@dataclass(frozen=True, slots=True)
class Once:
    """``once`` tells a campaign with a budget that there is nothing to go round for."""

    once: bool = True

    def start(self, lanes: Cases) -> Cases:
        return lanes

    def next(self, lanes: Cases, made: Cases, kept: Tensor, failing: Tensor) -> Next:
        lanes = standing(lanes, made)
        first = lanes.info.get("cycle", torch.zeros_like(lanes.origin)) == 0
        return Next(lanes, lanes.info["step"] >= 1, failing & first)
