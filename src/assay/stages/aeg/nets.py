"""The two nets of the generator: a U-Net that makes images, and a critic that judges patches of them."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.core.errors import UsageError

KERNEL, SLOPE = 4, 0.2  # of every convolution, of every leaky ReLU
LEAST_SIDE, DEEPEST, MOST = 8, 4, 8  # smallest image, most halvings, most filters as a multiple of the first


def depth_of(shape: tuple[int, ...]) -> int:
    """How often an image of that shape is halved: down to about 4 pixels, 4 times at most.

    >>> [depth_of((1, side, side)) for side in (8, 28, 32, 64, 224)]
    [1, 3, 3, 4, 4]
    """
    if len(shape) != 3 or min(shape[1:]) < LEAST_SIDE:
        form = f"vectors of {shape[0]} numbers" if len(shape) == 1 else "×".join(map(str, shape))
        raise UsageError(f"the generator makes images with sides of {LEAST_SIDE} pixels or more, and inputs are {form}")
    return max(1, min(DEEPEST, round(math.log2(min(shape[1:]) / 4))))


def margins(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Pixels to add left, right, above and below so that every halving of the image is whole."""
    step = 2 ** depth_of(shape)
    (above, below), (left, right) = ((rest // 2, rest - rest // 2) for rest in (-side % step for side in shape[1:]))
    return left, right, above, below


def _conv(into: int, out: int, stride: int) -> nn.Conv2d:
    conv = nn.Conv2d(into, out, KERNEL, stride, padding=1 if stride == 2 else 0)
    # As the public code's library begins: uniform after Glorot, no bias.
    nn.init.xavier_uniform_(conv.weight)
    nn.init.zeros_(conv.bias)  # type: ignore[arg-type]  # it has one
    return conv


def _norm(width: int) -> nn.Module:
    return nn.InstanceNorm2d(width, affine=True)


class Doubled(nn.Module):
    """Nearest-neighbour doubling and a 4×4 convolution of stride 1 behind it, as one step.

    Doubling repeats each pixel four times, so sixteen products with four of nine pixels are what six products are with
    the summed weights: a transposed convolution of stride 2 with 5×5 weights. It is the same map, 2 to 9 times as fast
    on a CPU in training.
    """

    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        self.conv = _conv(into, out, 1)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.conv.weight.flip(2, 3).transpose(0, 1)
        corners = ((0, 1, 0, 1), (1, 0, 0, 1), (0, 1, 1, 0), (1, 0, 1, 0))
        summed = sum((functional.pad(weight, corner) for corner in corners[1:]), functional.pad(weight, corners[0]))
        return functional.conv_transpose2d(x, summed, self.conv.bias, stride=2, padding=2, output_padding=1)


class Generator(nn.Module):
    """Images (N, C, H, W) in [-1, 1] to such images: a U-Net; sides are multiples of 2 to the depth.

    Public code: every block is normalised. Without ``first_norm`` the first one is not: a norm of each image forgets
    how bright and how contrasted it was, and nothing behind it can tell: photographs come back in other colours.
    """

    def __init__(self, channels: int, depth: int, width: int, first_norm: bool = True) -> None:
        super().__init__()
        wide = [min(2**i, MOST) * width for i in range(depth)]
        self.down = nn.ModuleList(
            nn.Sequential(_conv(into, out, 2), nn.LeakyReLU(SLOPE), *([_norm(out)] if i or first_norm else []))
            for i, (into, out) in enumerate(zip([channels, *wide], wide, strict=False))
        )
        self.up = nn.ModuleList()
        into = wide[-1]
        for skip in reversed(wide[:-1]):
            self.up.append(nn.Sequential(Doubled(into, skip), nn.ReLU(), _norm(skip)))
            into = 2 * skip
        self.last = Doubled(into, channels)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
        for block, skip in zip(self.up, reversed(skips[:-1]), strict=True):
            x = torch.cat((block(x), skip), 1)
        return torch.tanh(self.last(x))


class Critic(nn.Module):
    """How real each patch of images (N, C, H, W) looks, (N, 1, h, w): a score without limits."""

    def __init__(self, channels: int, depth: int, width: int) -> None:
        super().__init__()
        wide = [min(2**i, MOST) * width for i in range(depth)]
        blocks: list[nn.Module] = []
        for i, (into, out) in enumerate(zip([channels, *wide], wide, strict=False)):
            blocks += [_conv(into, out, 2), nn.LeakyReLU(SLOPE), *([_norm(out)] if i else [])]
        self.blocks, self.last = nn.Sequential(*blocks), _conv(wide[-1], 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.last(functional.pad(self.blocks(x), (1, 2, 1, 2)))
        return scores
