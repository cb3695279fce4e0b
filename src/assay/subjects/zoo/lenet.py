"""LeNet-1, -4 and -5 as the testing papers give them."""

from torch import nn

from assay.core.errors import UsageError
from assay.core.registry import register
from assay.subjects.zoo.parts import PadTo, activation_of, image_shape, width_after


def _lenet(
    shape: tuple[int, ...],
    classes: int,
    channels: tuple[int, int],
    dense: tuple[int, ...],
    padding: str,
    activation: str,
) -> nn.Sequential:
    if padding not in ("same", "valid"):
        raise UsageError(f"padding must be 'same' or 'valid', got {padding!r}")
    depth, *_ = image_shape(shape, "LeNet")
    net = nn.Sequential()
    net.add_module("pad", PadTo(4 if padding == "same" else 16))  # two pools; 'valid' loses four pixels a layer
    for i, width in enumerate(channels, 1):
        net.add_module(f"conv{i}", nn.Conv2d(depth, width, 5, padding=padding))
        net.add_module(f"act{i}", activation_of(activation))
        net.add_module(f"pool{i}", nn.MaxPool2d(2))
        depth = width
    net.add_module("flatten", nn.Flatten())
    wide = width_after(net, shape)
    for i, units in enumerate(dense, 1):
        net.add_module(f"dense{i}", nn.Linear(wide, units))
        net.add_module(f"act{i + 2}", activation_of(activation))
        wide = units
    net.add_module("out", nn.Linear(wide, classes))
    return net


@register("model", paper="LeCun et al. 1998")
def lenet1(*, shape: tuple[int, ...], classes: int, padding: str = "valid", activation: str = "relu") -> nn.Module:
    """LeNet-1: two convolutions (4 and 12 filters of 5×5) and one dense layer."""
    return _lenet(shape, classes, (4, 12), (), padding, activation)


@register("model", paper="LeCun et al. 1998")
def lenet4(*, shape: tuple[int, ...], classes: int, padding: str = "same", activation: str = "relu") -> nn.Module:
    """LeNet-4: two convolutions (6 and 16 filters of 5×5), dense 84."""
    return _lenet(shape, classes, (6, 16), (84,), padding, activation)


@register("model", paper="LeCun et al. 1998")
def lenet5(*, shape: tuple[int, ...], classes: int, padding: str = "same", activation: str = "relu") -> nn.Module:
    """LeNet-5: two convolutions (6 and 16 filters of 5×5), dense 120 and 84."""
    return _lenet(shape, classes, (6, 16), (120, 84), padding, activation)
