"""The range of every neuron over the training data."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Profile:
    """Smallest, largest, mean value and standard deviation of every neuron, (W,) each, over ``count`` inputs."""

    low: Tensor
    high: Tensor
    mean: Tensor
    std: Tensor
    count: int
