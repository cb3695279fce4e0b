"""The losses of JPEG, batched: what encoding and decoding an image does to its pixels, without the bytes between."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

# ITU-T T.81, tables K.1 and K.2.
_LUMA = """
16 11 10 16 24 40 51 61 12 12 14 19 26 58 60 55 14 13 16 24 40 57 69 56 14 17 22 29 51 87 80 62
18 22 37 56 68 109 103 77 24 35 55 64 81 104 113 92 49 64 78 87 103 121 120 101 72 92 95 98 112 100 103 99
"""
_CHROMA = """
17 18 24 47 99 99 99 99 18 21 26 66 99 99 99 99 24 26 56 99 99 99 99 99 47 66 99 99 99 99 99 99
99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99
"""
# Sums of whole numbers often end on a half: this much decides them alike whatever the order of summation was.
_TIE = 1e-9


def round_trip(x: Tensor, quality: int) -> Tensor:
    """Images (N, C, H, W) in [0, 1] after JPEG of this quality (1 to 100), as 8-bit values over 255.

    Three channels are RGB and lose half the resolution of their colours (4:2:0); any others are grey planes.
    """
    pixels = _nearest(x.double() * 255.0)
    if x.shape[1] != 3:
        return (_plane(pixels, _table(_LUMA, quality, x), 8) / 255.0).to(x.dtype)
    luma, *chroma = _to_ycc(pixels)
    luma = _plane(luma, _table(_LUMA, quality, x), 16)
    blue, red = _coarse(torch.cat(chroma, 1), _table(_CHROMA, quality, x)).split(1, 1)
    return (_to_rgb(luma, blue - 128.0, red - 128.0) / 255.0).to(x.dtype)


def _nearest(x: Tensor) -> Tensor:
    return (x + (0.5 + _TIE)).floor()


def _byte(x: Tensor) -> Tensor:
    return _nearest(x).clamp_(0.0, 255.0)


def _table(text: str, quality: int, like: Tensor) -> Tensor:
    """The step of each frequency, (8, 8) float64."""
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    steps = [min(max((int(step) * percent + 50) // 100, 1), 255) for step in text.split()]
    return torch.tensor(steps, dtype=torch.float64, device=like.device).view(8, 8)


def _to_ycc(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    red, green, blue = x.split(1, 1)
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    return _nearest(luma), _byte((blue - luma) / 1.772 + 128.0), _byte((red - luma) / 1.402 + 128.0)


def _to_rgb(luma: Tensor, blue: Tensor, red: Tensor) -> Tensor:
    green = luma - (0.114 * 1.772 * blue + 0.299 * 1.402 * red) / 0.587
    return _byte(torch.cat((luma + 1.402 * red, green, luma + 1.772 * blue), 1))


def _padded(x: Tensor, block: int) -> Tensor:
    """The border repeated to a whole number of blocks."""
    return F.pad(x, (0, -x.shape[-1] % block, 0, -x.shape[-2] % block), mode="replicate")


def _coarse(x: Tensor, table: Tensor) -> Tensor:
    """Planes stored at half the resolution and read with linear interpolation."""
    height, width = x.shape[-2:]
    x = _padded(x, 16)
    fours = F.avg_pool2d(x, 2, divisor_override=1)
    # The encoder adds 1 and 2 in turn before it divides by four, so that rounding does not darken.
    turns = torch.arange(fours.shape[-1], device=x.device) % 2 + 1
    coarse = _quantised((fours + turns).div_(4).floor_(), table)
    coarse = coarse[..., : (height + 1) // 2, : (width + 1) // 2]
    fine = F.interpolate(coarse, scale_factor=2, mode="bilinear", align_corners=False)
    return _nearest(fine[..., :height, :width])


def _plane(x: Tensor, table: Tensor, block: int) -> Tensor:
    height, width = x.shape[-2:]
    return _quantised(_padded(x, block), table)[..., :height, :width]


def _quantised(x: Tensor, table: Tensor) -> Tensor:
    """8×8 blocks with their frequencies rounded to multiples of the table."""
    blocks = (x - 128.0).unflatten(-1, (-1, 8)).unflatten(-3, (-1, 8)).transpose(-3, -2)
    cosine = _cosines(x)
    # Rounded to eighths first, as encoders with whole numbers do: it brings the result nearer to theirs.
    steps = _nearest(8 * (cosine @ blocks @ cosine.T)) / (8 * table)
    steps = steps.sign() * _nearest(steps.abs())
    blocks = cosine.T @ (steps * table) @ cosine
    return _byte(blocks.transpose(-3, -2).flatten(-4, -3).flatten(-2, -1) + 128.0)


def _cosines(like: Tensor) -> Tensor:
    """The orthonormal discrete cosine transform, (8, 8) float64."""
    place = torch.arange(8, dtype=torch.float64, device=like.device)
    matrix = torch.cos((2 * place + 1) * place[:, None] * (math.pi / 16)) / 2
    matrix[0] = 1 / math.sqrt(8)
    return matrix
