"""Blurs, warps and pixelation of image batches (N, C, H, W); no row depends on another."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from assay.core.images import sample
from assay.core.randomness import Rows


def convolve(x: Tensor, kernel: Tensor, border: str) -> Tensor:
    """Every channel correlated with one kernel of odd sides on the CPU, outside the image ``border`` (as F.pad's mode).

    One addition for each weight, not a convolution call: on GPUs those round inputs to ten bits (TF32), on the CPU
    they measured slower (224 px: 2.5 times, 32 px: 5 times).
    """
    height, width = x.shape[-2:]
    down, across = (side // 2 for side in kernel.shape)
    padded = F.pad(x, (across, across, down, down), mode=border)
    out = torch.zeros_like(x)
    for i, line in enumerate(kernel.tolist()):
        for j, weight in enumerate(line):
            if weight:
                out.add_(padded[..., i : i + height, j : j + width], alpha=weight)
    return out


def bell(sigma: float, reach: int) -> Tensor:
    """Gaussian weights that sum to 1, (2 * reach + 1,) float64."""
    place = torch.arange(-reach, reach + 1, dtype=torch.float64)
    weights = torch.exp(-(place**2) / (2 * sigma**2))
    return weights / weights.sum()


def gaussian_blur(x: Tensor, sigma: float) -> Tensor:
    """Gaussian blur up to four sigmas, the border repeated."""
    weights = bell(sigma, int(4 * sigma + 0.5))
    return convolve(convolve(x, weights[:, None], "replicate"), weights[None, :], "replicate")


def disc(radius: float, soften: float) -> Tensor:
    """A disc that sums to 1, its edge softened by a Gaussian of 3×3 pixels (5×5 for radii above 8), float64."""
    reach = int(radius)
    place = torch.arange(-reach, reach + 1, dtype=torch.float64)
    inside = (place[:, None] ** 2 + place**2 <= radius**2).to(torch.float64)
    edge = 1 if radius <= 8 else 2
    weights = bell(soften, edge)
    soft = F.conv2d((inside / inside.sum())[None, None], torch.outer(weights, weights)[None, None], padding=2 * edge)
    return soft[0, 0]


def defocus_blur(x: Tensor, radius: float, soften: float) -> Tensor:
    """Every point spread over a disc, the image mirrored at its border."""
    return convolve(x, disc(radius, soften), "reflect")


def motion_blur(x: Tensor, angle: Tensor, reach: float, sigma: float) -> Tensor:
    """Half a Gaussian along a line at ``angle`` (N,) in radians, in whole pixels, the border repeated."""
    height, width = x.shape[-2:]
    place = torch.arange(2 * math.ceil(reach) + 1, device=x.device)
    weights = torch.exp(-(place.double() ** 2) / (2 * sigma**2))
    weights = (weights / weights.sum()).to(x.dtype)
    right, below = ((place * part[:, None] - 0.5).ceil().long() for part in (angle.cos(), angle.sin()))
    rows, columns = torch.arange(height, device=x.device), torch.arange(width, device=x.device)
    flat, out = x.flatten(2), torch.zeros_like(x)
    for k in range(len(place)):
        down = (rows + below[:, k, None]).clamp(0, height - 1)
        across = (columns + right[:, k, None]).clamp(0, width - 1)
        index = (down[:, :, None] * width + across[:, None, :]).flatten(1)
        out += weights[k] * flat.gather(2, index[:, None].expand_as(flat)).view_as(x)
    return out


def zoom_blur(x: Tensor, most: float, stride: float) -> Tensor:
    """The mean of the image and itself zoomed by 1, 1 + stride, … up to ``most``, about its centre."""
    height, width = x.shape[-2:]
    down, across = (torch.arange(side, device=x.device, dtype=x.dtype) - (side - 1) / 2 for side in (height, width))
    steps = round((most - 1) / stride)
    out = 2 * x  # itself, and itself zoomed by 1
    for k in range(1, steps + 1):
        zoom = 1 + k * stride
        # Paper: crops whole pixels before it zooms, which leaves small images as they are. Here: the exact zoom,
        # because a severity must not depend on how the side happens to round.
        at_row, at_column = down / zoom + (height - 1) / 2, across / zoom + (width - 1) / 2
        out += sample(x, at_column[None, None, :], at_row[None, :, None], padding="border")
    return out / (steps + 2)


def pixelate(x: Tensor, height: int, width: int) -> Tensor:
    """Box-filtered down to ``height`` × ``width`` pixels and up again."""
    down, across = (_there_and_back(*sides, x) for sides in ((x.shape[2], height), (x.shape[3], width)))
    return down @ x @ across.T


def _there_and_back(side: int, small: int, like: Tensor) -> Tensor:
    return (_box(small, side) @ _box(side, small)).to(like)


def _box(before: int, after: int) -> Tensor:
    """Weights (after, before), float64, of a resize: a pixel takes the mean of those whose centres it covers."""
    offset = (2 * torch.arange(before) + 1) * after - (2 * torch.arange(after)[:, None] + 1) * before
    covered = ((offset > -max(before, after)) & (offset <= max(before, after))).to(torch.float64)
    return covered / covered.sum(1, keepdim=True)


def elastic(x: Tensor, rng: Rows, strength: float, sigma: float, jitter: float) -> Tensor:
    """Pixels moved by a smooth random field and by a random affine map, the image mirrored at its border.

    The field is uniform noise times ``strength``, blurred by ``sigma``; the affine map moves three corners of the
    middle square by up to ``jitter``; all in pixels.
    """
    height, width = x.shape[-2:]
    field = gaussian_blur(rng.at(0).uniform((2, height, width), -strength, strength).to(x.dtype), sigma)
    # Paper: warps twice and moves the image. Here: one warp moves the points it is read at, because one interpolation
    # blurs less; the map and its inverse are alike in distribution.
    down, across = (torch.arange(side, device=x.device, dtype=x.dtype) for side in (height, width))
    half = min(height, width) / 3
    below, right = ((down - (height - 1) / 2) / half)[:, None], (across - (width - 1) / 2) / half
    # The moves of the corners of the middle square at (1, 1), (1, -1) and (-1, -1) in (right, below) say all others.
    one, two, three = rng.at(1).uniform((3, 2, 1, 1), -jitter, jitter).to(x.dtype).unbind(1)
    move = field + (one + three) / 2 + (two - three) / 2 * right + (one - two) / 2 * below
    return sample(x, across + move[:, 0], down[:, None] + move[:, 1], padding="reflection")
