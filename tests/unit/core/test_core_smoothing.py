"""Blurs against loops over windows."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.core.smoothing import BLURS, bilateral, gaussian, mean, median


def images(shape: tuple[int, ...] = (3, 2, 6, 5)) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def windows(x: Tensor, before: int, after: int, mode: str) -> np.ndarray:
    """All windows from ``before`` pixels up and left to ``after`` down and right, (N, C, H, W, side, side)."""
    image = x.double().numpy()
    padded = np.pad(image, ((0, 0), (0, 0), (before, after), (before, after)), mode=mode)  # type: ignore[call-overload]
    side = before + after + 1
    out = np.empty((*image.shape, side, side))
    for i, j in product(range(image.shape[2]), range(image.shape[3])):
        out[:, :, i, j] = padded[:, :, i : i + side, j : j + side]
    return out


@pytest.mark.parametrize(("side", "before", "after"), [(3, 1, 1), (4, 2, 1), (5, 2, 2)])
def test_mean(side: int, before: int, after: int) -> None:
    want = windows(images(), before, after, "reflect").mean((-1, -2))
    assert np.allclose(mean(images(), side).numpy(), want, atol=1e-6)


@pytest.mark.parametrize(("side", "sigma"), [(3, 0.8), (5, 1.1), (7, 1.4)])
def test_gaussian(side: int, sigma: float) -> None:
    reach = side // 2
    place = np.arange(-reach, reach + 1)
    line = np.exp(-(place**2) / (2 * sigma**2))
    weights = np.outer(line, line) / line.sum() ** 2
    want = (windows(images(), reach, reach, "reflect") * weights).sum((-1, -2))
    assert np.allclose(gaussian(images(), side).numpy(), want, atol=1e-6)


@pytest.mark.parametrize("side", [3, 5])
def test_median(side: int) -> None:
    coarse = (images() * 4).round() / 4  # with ties
    for x in (images(), coarse):
        want = np.median(windows(x, side // 2, side // 2, "edge"), axis=(-1, -2))
        assert np.array_equal(median(x, side).double().numpy(), want)


def test_bilateral() -> None:
    x, colour, space = images(), 50 / 255, 50.0
    near = windows(x, 3, 3, "reflect")
    gap = np.abs(near - x.double().numpy()[..., None, None]).sum(1, keepdims=True)
    down, across = np.mgrid[-3:4, -3:4]
    weights = np.exp(-(gap**2) / (2 * colour**2)) * np.exp(-(down**2 + across**2) / (2 * space**2))
    weights = weights * (down**2 + across**2 <= 9)
    want = (near * weights).sum((-1, -2)) / weights.sum((-1, -2))
    assert np.allclose(bilateral(x, 6, colour, space).numpy(), want, atol=1e-5)


def test_bilateral_keeps_edges_that_the_mean_blurs() -> None:
    x = torch.zeros(1, 1, 8, 8)
    x[..., 4:] = 1.0
    assert (bilateral(x, 6, 50 / 255, 50.0) - x).abs().max() < 1e-4
    assert (mean(x, 3) - x).abs().max() > 0.3


@pytest.mark.parametrize("which", range(len(BLURS)))
def test_blurs_keep_flat_images_and_range_and_rows_apart(which: int) -> None:
    flat = torch.full((2, 1, 4, 4), 0.3)
    assert torch.allclose(BLURS[which](flat), flat, atol=1e-6)
    x = images((5, 3, 8, 7))
    before, out = x.clone(), BLURS[which](x)
    assert torch.equal(x, before)
    assert out.min() >= x.min() - 1e-6
    assert out.max() <= x.max() + 1e-6
    assert not torch.equal(out, x)
    assert torch.equal(BLURS[which](x[3:4]), out[3:4])
    assert math.isfinite(float(out.sum()))
    out.zero_()
    assert torch.equal(x, before), "and gives no view of it"
