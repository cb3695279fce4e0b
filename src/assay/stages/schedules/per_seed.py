"""A fixed number of tries for each seed, each from the seed itself."""

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.registry import register
from assay.stages.schedules import Next, standing


@register("schedule")
def per_seed(*, steps: int = 64, failures: int = 1) -> "PerSeed":
    """A seed is done after ``steps`` cases or ``failures`` failures, whichever comes first."""
    if steps < 1 or failures < 1:
        raise UsageError(f"a seed needs at least one step and one failure to end at, got {steps} and {failures}")
    return PerSeed(steps, failures)


@dataclass(frozen=True, slots=True)
class PerSeed:
    steps: int
    failures: int

    def start(self, lanes: Cases) -> Cases:
        return lanes.note(hits=torch.zeros_like(lanes.origin))

    def next(self, lanes: Cases, made: Cases, kept: Tensor, failing: Tensor) -> Next:
        hits = lanes.info["hits"] + failing
        lanes = standing(lanes, made)
        ended = (lanes.info["step"] >= self.steps) | (hits >= self.failures)
        return Next(lanes.note(hits=hits), ended, failing)
