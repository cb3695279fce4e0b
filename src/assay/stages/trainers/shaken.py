"""A net with random noise on its weights: the control of trainings that change few of them."""

import copy

import torch
from torch import Tensor, nn

from assay.core.randomness import Stream


def shaken(before: nn.Module, after: nn.Module, rng: Stream) -> nn.Module:
    """A copy of ``before`` with Gaussian noise on the weights that differ in ``after``, as long in each tensor (L2).

    Weights that are the same in both stay bit for bit, and so does what is no weight, such as the statistics of batch
    normalisation. A number that this net reaches too speaks of change, not of what was learned.
    """
    net, others = copy.deepcopy(before), dict(after.named_parameters())
    with torch.no_grad():
        for name, weight in net.named_parameters():
            weight.copy_(_moved(weight, others[name].to(weight.device), rng.at(name)))
    return net


def _moved(weight: Tensor, other: Tensor, rng: Stream) -> Tensor:
    """The weights, with noise as long as the way to the others where they differ."""
    moved = (weight != other).cpu()
    # Drawn on the CPU and in full precision, so that every device gives the same net; rounded once.
    old, new = weight.double().cpu(), other.double().cpu()
    noise = torch.randn(old.shape, generator=rng.generator(), dtype=torch.float64).masked_fill(~moved, 0.0)
    length = noise.norm()
    return old + noise * ((new - old).norm() / length) if length > 0 else old
