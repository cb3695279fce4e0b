"""Residual nets: ResNet-20 (v1) and ResNet-18 in the form used for 32×32 images."""

from collections import OrderedDict

from torch import Tensor, nn

from assay.core.registry import register
from assay.subjects.zoo.parts import activation_of, image_shape


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut, which is a 1×1 convolution where the shape changes."""

    def __init__(self, before: int, after: int, stride: int, activation: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.act1 = activation_of(activation)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
        self.act2 = activation_of(activation)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm2(self.conv2(self.act1(self.norm1(self.conv1(x)))))
        result: Tensor = self.act2(out + self.shortcut(x))
        return result


def _resnet(
    shape: tuple[int, ...], classes: int, widths: tuple[int, ...], repeats: tuple[int, ...], activation: str
) -> nn.Module:
    depth, *_ = image_shape(shape, "ResNet")
    parts: OrderedDict[str, nn.Module] = OrderedDict(
        conv=nn.Conv2d(depth, widths[0], 3, 1, 1, bias=False),
        norm=nn.BatchNorm2d(widths[0]),
        act=activation_of(activation),
    )
    before = widths[0]
    for stage, (width, times) in enumerate(zip(widths, repeats, strict=True), 1):
        for i in range(1, times + 1):
            stride = 2 if i == 1 and stage > 1 else 1
            parts[f"block{stage}_{i}"] = BasicBlock(before, width, stride, activation)
            before = width
    parts["pool"] = nn.AdaptiveAvgPool2d(1)
    parts["flatten"] = nn.Flatten()
    parts["out"] = nn.Linear(before, classes)
    return nn.Sequential(parts)


@register("model", paper="He et al. 2016")
def resnet20(*, shape: tuple[int, ...], classes: int, activation: str = "relu", width: int = 16) -> nn.Module:
    """ResNet-20 (v1): three stages of three blocks, 16, 32 and 64 filters (times ``width`` / 16)."""
    return _resnet(shape, classes, (width, 2 * width, 4 * width), (3, 3, 3), activation)


@register("model", paper="He et al. 2016")
def resnet18(*, shape: tuple[int, ...], classes: int, activation: str = "relu", width: int = 64) -> nn.Module:
    """ResNet-18 with a 3×3 stem and no first pool: four stages of two blocks, 64 to 512 filters."""
    return _resnet(shape, classes, (width, 2 * width, 4 * width, 8 * width), (2, 2, 2, 2), activation)
