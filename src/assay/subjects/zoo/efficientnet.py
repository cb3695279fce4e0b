"""EfficientNet-Lite0: inverted residuals without squeeze-and-excitation, ReLU6 throughout."""

from torch import Tensor, nn

from assay.core.registry import register
from assay.subjects.zoo.parts import image_shape

# How often, kernel, stride of the first, widening inside, filters after.
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
FEATURES = 1280  # filters of the last convolution


class Block(nn.Sequential):
    """Widen, filter each channel, narrow; added to what came in where the shape stays.

    Names of weights, here and below, are those of the published arrays.
    """

    def __init__(self, before: int, after: int, widen: int, kernel: int, stride: int, sides: tuple[int, int]) -> None:
        super().__init__()
        wide = before * widen
        if widen > 1:
            self.add_module("_expand_conv", nn.Conv2d(before, wide, 1, bias=False))
            self.add_module("_bn0", _norm(wide))
            self.add_module("act0", nn.ReLU6())
        self.add_module("pad", same_padding(kernel, stride, sides))
        self.add_module("_depthwise_conv", nn.Conv2d(wide, wide, kernel, stride, groups=wide, bias=False))
        self.add_module("_bn1", _norm(wide))
        self.add_module("act1", nn.ReLU6())
        self.add_module("_project_conv", nn.Conv2d(wide, after, 1, bias=False))
        self.add_module("_bn2", _norm(after))
        self.skips = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        out = x
        for part in self:
            out = part(out)
        return x + out if self.skips else out


def same_padding(kernel: int, stride: int, sides: tuple[int, int]) -> nn.Module:
    """Zeros that make ceil(side / stride) of each side, the odd one after: as the net was trained."""
    wanted = [max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in sides]
    down, across = ((total // 2, total - total // 2) for total in wanted)
    return nn.ZeroPad2d((*across, *down))


def _norm(width: int) -> nn.Module:
    return nn.BatchNorm2d(width, eps=1e-3, momentum=0.01)


@register("model", paper="Tan and Le 2019")
def efficientnet_lite0(*, shape: tuple[int, ...], classes: int, dropout: float = 0.2) -> nn.Module:
    """EfficientNet-Lite0: sixteen inverted residual blocks, 4.7 million weights, made for 224×224 images."""
    depth, *sides = image_shape(shape, "EfficientNet")
    height, width = sides
    net = nn.Sequential()
    net.add_module("pad", same_padding(3, 2, (height, width)))
    net.add_module("_conv_stem", nn.Conv2d(depth, 32, 3, 2, bias=False))
    net.add_module("_bn0", _norm(32))
    net.add_module("act0", nn.ReLU6())
    height, width, before = -(-height // 2), -(-width // 2), 32
    blocks = nn.Sequential()
    for times, kernel, first, widen, after in STAGES:
        for i in range(times):
            stride = first if i == 0 else 1
            blocks.append(Block(before, after, widen, kernel, stride, (height, width)))
            height, width, before = -(-height // stride), -(-width // stride), after
    net.add_module("_blocks", blocks)
    net.add_module("_conv_head", nn.Conv2d(before, FEATURES, 1, bias=False))
    net.add_module("_bn1", _norm(FEATURES))
    net.add_module("act1", nn.ReLU6())
    net.add_module("pool", nn.AdaptiveAvgPool2d(1))
    net.add_module("flatten", nn.Flatten())
    net.add_module("drop", nn.Dropout(dropout))
    net.add_module("_fc", nn.Linear(FEATURES, classes))
    return net
