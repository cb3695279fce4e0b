"""Image measures and conversions on batches (N, C, H, W) with values in [0, 1]."""

import io
from typing import cast

import torch
from torch import Tensor

SSIM_WINDOW, SSIM_SIGMA = 11, 1.5


def ssim(x: Tensor, reference: Tensor) -> Tensor:
    """Structural similarity of each pair, (N,): 11×11 Gaussian window, sigma 1.5, borders reflected, mean of channels.

    Images smaller than the window get the largest odd window that fits.
    """
    if len(x) == 0:
        return x.new_zeros(0)
    window = min(SSIM_WINDOW, *(side if side % 2 else side - 1 for side in x.shape[-2:]))
    down, across = (_blur_matrix(side, window, x) for side in x.shape[-2:])

    def blurred(image: Tensor) -> Tensor:
        # Two small products instead of a convolution: ten times as fast on small images, and SSIM takes five.
        return down @ image @ across.T

    mean, other = blurred(x), blurred(reference)
    product = mean * other
    squares = mean.square(), other.square()
    spreads = blurred(x.square()) - squares[0] + blurred(reference.square()) - squares[1]
    together = blurred(x * reference) - product
    first, second = 0.01**2, 0.03**2  # of the range, which is 1
    share = (2 * product + first) * (2 * together + second)
    return (share / ((squares[0] + squares[1] + first) * (spreads + second))).flatten(1).mean(1)


def _blur_matrix(side: int, window: int, like: Tensor) -> Tensor:
    """The matrix that takes a Gaussian mean along one axis, its ends reflected, (side, side)."""
    offset = torch.arange(window) - window // 2
    weight = torch.exp(-offset.double().square() / (2 * SSIM_SIGMA**2))
    place = (torch.arange(side)[:, None] + offset).abs()
    place = torch.where(place >= side, 2 * (side - 1) - place, place)
    matrix = torch.zeros(side, side, dtype=torch.float64)
    matrix.scatter_add_(1, place, (weight / weight.sum()).expand(side, -1))
    return matrix.to(like)


def unit_range(x: Tensor, bounds: tuple[float, float]) -> Tensor:
    """Values of inputs within ``bounds`` as values in [0, 1]."""
    low, high = bounds
    return x if bounds == (0.0, 1.0) else (x - low) / (high - low)


def tenengrad(x: Tensor) -> Tensor:
    """Sum over pixels of the Sobel gradient magnitude of the grey image, (N,): high for noise and sharp edges."""
    from kornia.filters import spatial_gradient

    if len(x) == 0:
        return x.new_zeros(0)
    # kornia divides its kernels by 8 when asked to normalise; the measure is defined on the plain ones.
    gradient = spatial_gradient(grey(x), mode="sobel", order=1, normalized=False)
    return cast(Tensor, gradient.square().sum(2).sqrt().flatten(1).sum(1))


def grey(x: Tensor) -> Tensor:
    """One channel: the image itself, or the luma of an RGB image."""
    if x.shape[1] != 3:
        return x.mean(1, keepdim=True)
    weights = x.new_tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    return (x * weights).sum(1, keepdim=True)


def sample(x: Tensor, across: Tensor, down: Tensor, padding: str) -> Tensor:
    """The images read between their pixels, at columns and rows that broadcast to (N, H, W), (N, C, H, W).

    Column 0 is the centre of the first pixel; outside the image ``padding`` reads zeros, the border or its reflection.
    Nothing here depends on the batch: a row comes out the same to the bit alone and among others.
    """
    height, width = x.shape[-2:]
    parts = torch.broadcast_tensors((2 * across + 1) / width - 1, (2 * down + 1) / height - 1)
    grid = torch.stack(parts, -1).to(x.dtype).expand(len(x), -1, -1, -1)
    return torch.nn.functional.grid_sample(x, grid, "bilinear", padding, align_corners=False)


def to_float(x: Tensor) -> Tensor:
    """8-bit pixels as float32 in [0, 1]."""
    return x.to(torch.float32) / 255.0


def to_bytes(x: Tensor) -> Tensor:
    """Values in [0, 1] as the nearest 8-bit pixels."""
    return (x.clamp(0, 1) * 255.0).round().to(torch.uint8)


def png(x: Tensor, scale: int = 1) -> bytes:
    """One image (C, H, W) in [0, 1] as PNG, each pixel drawn ``scale`` times."""
    from PIL import Image

    pixels = to_bytes(x.detach().cpu()).repeat_interleave(scale, 1).repeat_interleave(scale, 2)
    array = pixels[0].numpy() if len(pixels) == 1 else pixels[:3].permute(1, 2, 0).contiguous().numpy()
    out = io.BytesIO()
    Image.fromarray(array).save(out, format="PNG", optimize=True)
    return out.getvalue()
