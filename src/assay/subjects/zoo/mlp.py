"""A plain multi-layer perceptron, for inputs of any shape."""

import math

from torch import nn

from assay.core.registry import register
from assay.subjects.zoo.parts import activation_of


@register("model")
def mlp(
    *, shape: tuple[int, ...], classes: int, hidden: tuple[int, ...] = (128, 64), activation: str = "relu"
) -> nn.Module:
    """Dense layers of the given widths over the flattened input."""
    net = nn.Sequential()
    net.add_module("flatten", nn.Flatten())
    wide = math.prod(shape)
    for i, units in enumerate(hidden, 1):
        net.add_module(f"dense{i}", nn.Linear(wide, units))
        net.add_module(f"act{i}", activation_of(activation))
        wide = units
    net.add_module("out", nn.Linear(wide, classes))
    return net
