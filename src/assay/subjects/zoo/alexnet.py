"""AlexNet in the form used for 32×32 images."""

from torch import nn

from assay.core.registry import register
from assay.subjects.zoo.parts import PadTo, activation_of, image_shape, width_after


@register("model", paper="Krizhevsky et al. 2012")
def alexnet(
    *, shape: tuple[int, ...], classes: int, activation: str = "relu", dropout: float = 0.5, dense: int = 2048
) -> nn.Module:
    """AlexNet for small images: five 3×3 convolutions, three pools, two dense layers with dropout."""
    depth, *_ = image_shape(shape, "AlexNet")
    net = nn.Sequential()
    net.add_module("pad", PadTo(8))
    for i, (width, pooled) in enumerate(((64, True), (192, True), (384, False), (256, False), (256, True)), 1):
        net.add_module(f"conv{i}", nn.Conv2d(depth, width, 3, padding=1))
        net.add_module(f"act{i}", activation_of(activation))
        if pooled:
            net.add_module(f"pool{i}", nn.MaxPool2d(2))
        depth = width
    net.add_module("flatten", nn.Flatten())
    wide = width_after(net, shape)
    for i in (1, 2):
        net.add_module(f"drop{i}", nn.Dropout(dropout))
        net.add_module(f"dense{i}", nn.Linear(wide, dense))
        net.add_module(f"act{i + 5}", activation_of(activation))
        wide = dense
    net.add_module("out", nn.Linear(wide, classes))
    return net
