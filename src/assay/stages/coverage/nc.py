"""Neuron coverage: neurons whose value exceeds a threshold."""

import math

import torch
from torch import Tensor

from assay.core.errors import UsageError
from assay.core.registry import register
from assay.stages.coverage import Coverage, Criterion
from assay.stages.coverage.bitmap import NONE, over_neurons
from assay.stages.coverage.profile import Profile
from assay.stages.coverage.rule import Rule
from assay.subjects.observer import Observer, Seen


@register("criterion", paper="DeepXplore 2017", needs=("activation",))
def nc(*, threshold: float = 0.5, scaled: bool = True) -> Criterion:
    """Neurons above the threshold; ``scaled`` by the smallest and largest number of their layer for that input.

    The scaled value of every neuron of a layer whose output is the same number throughout is 0.

    Formula: |{n : scaled value of n > threshold for some test}| / |neurons|, scaled = (v − min layer)/(max layer −
    min layer).
    """
    if not math.isfinite(threshold) or (scaled and not 0 <= threshold < 1):
        raise UsageError(f"nc: threshold must be {'in [0, 1)' if scaled else 'a number'}, got {threshold}")

    def begin(observer: Observer, profile: Profile | None) -> Coverage:
        device = observer.targets[0].device
        places = torch.arange(observer.neurons, device=device)
        widths = torch.tensor([layer.width for layer in observer.each])
        owner = torch.arange(len(widths)).repeat_interleave(widths).to(device)

        def reach(seen: Seen) -> Tensor:
            values = scaled_values(seen, owner) if scaled else seen.neurons
            return torch.where(values > threshold, places, NONE)

        return over_neurons(observer, reach)

    return Rule(begin, ends=scaled)


def scaled_values(seen: Seen, owner: Tensor) -> Tensor:
    """Values of neurons scaled to [0, 1] within the output of their layer, (N, W); ``owner`` (W,) are their layers."""
    # Mean of the scaled map = scaled mean of the map: scaling is affine.
    span = seen.high - seen.low
    span = torch.where(span > 0, span, torch.inf)  # a mean of equal numbers may be off them by a last bit
    return (seen.neurons - seen.low[:, owner]) / span[:, owner]
