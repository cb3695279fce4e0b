"""VGG-16 and VGG-19 with batch normalisation, in the form used for 32×32 images."""

from torch import nn

from assay.core.registry import register
from assay.subjects.zoo.parts import PadTo, activation_of, image_shape, width_after


def _vgg(shape: tuple[int, ...], classes: int, repeats: tuple[int, ...], activation: str, dropout: float) -> nn.Module:
    depth, *_ = image_shape(shape, "VGG")
    net = nn.Sequential()
    net.add_module("pad", PadTo(32))  # five pools
    for block, (times, width) in enumerate(zip(repeats, (64, 128, 256, 512, 512), strict=True), 1):
        for i in range(1, times + 1):
            net.add_module(f"conv{block}_{i}", nn.Conv2d(depth, width, 3, padding=1, bias=False))
            net.add_module(f"norm{block}_{i}", nn.BatchNorm2d(width))
            net.add_module(f"act{block}_{i}", activation_of(activation))
            depth = width
        net.add_module(f"pool{block}", nn.MaxPool2d(2))
    net.add_module("flatten", nn.Flatten())
    wide = width_after(net, shape)
    net.add_module("dense1", nn.Linear(wide, 512))
    net.add_module("act6", activation_of(activation))
    net.add_module("drop1", nn.Dropout(dropout))
    net.add_module("out", nn.Linear(512, classes))
    return net


@register("model", paper="Simonyan and Zisserman 2015")
def vgg16(*, shape: tuple[int, ...], classes: int, activation: str = "relu", dropout: float = 0.5) -> nn.Module:
    """VGG-16 with batch normalisation: thirteen convolutions, one hidden dense layer of 512."""
    return _vgg(shape, classes, (2, 2, 3, 3, 3), activation, dropout)


@register("model", paper="Simonyan and Zisserman 2015")
def vgg19(*, shape: tuple[int, ...], classes: int, activation: str = "relu", dropout: float = 0.5) -> nn.Module:
    """VGG-19 with batch normalisation: sixteen convolutions, one hidden dense layer of 512."""
    return _vgg(shape, classes, (2, 2, 4, 4, 4), activation, dropout)
