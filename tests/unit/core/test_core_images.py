"""Image measures against slow references, and conversions that lose nothing."""

import io

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image
from torch import Tensor

from assay.core import images

Plane = npt.NDArray[np.float64]


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def plane_ssim(a: Plane, b: Plane, window: int) -> float:
    """Wang et al. 2004 pixel by pixel: Gaussian weights, sigma 1.5, mirrored border, K1 = 0.01, K2 = 0.03."""
    half = window // 2
    line = np.exp(-((np.arange(window) - half) ** 2) / (2 * 1.5**2))
    weights = np.outer(line, line) / line.sum() ** 2
    a, b = np.pad(a, half, mode="reflect"), np.pad(b, half, mode="reflect")
    values = []
    for i in range(a.shape[0] - window + 1):
        for j in range(a.shape[1] - window + 1):
            p, q = a[i : i + window, j : j + window], b[i : i + window, j : j + window]
            mean_p, mean_q = (weights * p).sum(), (weights * q).sum()
            var_p, var_q = (weights * (p - mean_p) ** 2).sum(), (weights * (q - mean_q) ** 2).sum()
            both = (weights * (p - mean_p) * (q - mean_q)).sum()
            above = (2 * mean_p * mean_q + 1e-4) * (2 * both + 9e-4)
            values.append(above / ((mean_p**2 + mean_q**2 + 1e-4) * (var_p + var_q + 9e-4)))
    return float(np.mean(values))


def plane_tenengrad(a: Plane) -> float:
    """The plain Sobel kernels on the image with its border repeated."""
    across = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    padded = np.pad(a, 1, mode="edge")
    total = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            patch = padded[i : i + 3, j : j + 3]
            total += float(np.hypot((across * patch).sum(), (across.T * patch).sum()))
    return total


@pytest.mark.parametrize("shape", [(2, 1, 16, 16), (1, 3, 12, 20), (2, 1, 8, 8), (1, 1, 1, 1), (1, 3, 2, 5)])
def test_an_image_is_fully_similar_to_itself(shape: tuple[int, ...]) -> None:
    x = noise(*shape)
    assert images.ssim(x, x).tolist() == pytest.approx([1.0] * shape[0], abs=1e-5)


@pytest.mark.parametrize(
    ("height", "width", "window"), [(16, 13, 11), (11, 11, 11), (10, 12, 9), (8, 8, 7), (2, 5, 1), (3, 3, 3)]
)
def test_ssim_agrees_with_the_slow_reference(height: int, width: int, window: int) -> None:
    x, reference = noise(2, 3, height, width), noise(2, 3, height, width, seed=1)
    mixed = 0.7 * reference + 0.3 * x
    right = [
        np.mean([plane_ssim(mixed[n, c].double().numpy(), x[n, c].double().numpy(), window) for c in range(3)])
        for n in range(2)
    ]
    assert images.ssim(mixed, x).tolist() == pytest.approx(right, abs=1e-4)


def test_ssim_of_two_flat_images_by_hand() -> None:
    # No variance: only the means speak, (2·0.2·0.6 + C1) / (0.2² + 0.6² + C1).
    dark, bright = torch.full((1, 1, 12, 12), 0.2), torch.full((1, 1, 12, 12), 0.6)
    assert images.ssim(dark, bright).item() == pytest.approx(0.2401 / 0.4001, abs=1e-4)


def test_tenengrad_of_an_edge_by_hand() -> None:
    # Two columns of three rows: every pixel beside the edge sees 4, and the border repeats.
    x = torch.tensor([[[[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]]])
    assert images.tenengrad(x).item() == pytest.approx(6 * 4.0, abs=1e-4)


def test_tenengrad_agrees_with_the_slow_reference() -> None:
    x = noise(2, 1, 7, 9)
    right = [plane_tenengrad(x[n, 0].double().numpy()) for n in range(2)]
    assert images.tenengrad(x).tolist() == pytest.approx(right, rel=1e-5)


def test_tenengrad_of_colour_is_that_of_its_luma() -> None:
    x = noise(1, 3, 6, 6)
    luma = 0.299 * x[0, 0] + 0.587 * x[0, 1] + 0.114 * x[0, 2]
    assert images.tenengrad(x).item() == pytest.approx(plane_tenengrad(luma.double().numpy()), rel=1e-5)


def test_a_flat_image_has_no_gradient() -> None:
    assert images.tenengrad(torch.full((1, 1, 5, 5), 0.5)).item() == pytest.approx(0.0, abs=1e-6)


def test_grey_by_hand() -> None:
    pixel = torch.tensor([1.0, 0.5, 0.25]).view(1, 3, 1, 1)
    assert images.grey(pixel).item() == pytest.approx(0.299 + 0.2935 + 0.0285)
    assert images.grey(pixel[:, :2]).item() == 0.75
    assert torch.equal(images.grey(pixel[:, :1]), pixel[:, :1])


def test_empty_batches_have_no_measures() -> None:
    nothing = torch.zeros(0, 1, 8, 8)
    assert images.ssim(nothing, nothing).shape == (0,)
    assert images.tenengrad(nothing).shape == (0,)


def test_every_byte_survives_the_round_trip() -> None:
    every = torch.arange(256, dtype=torch.uint8)
    floats = images.to_float(every)
    assert floats.dtype == torch.float32
    assert (floats[0].item(), floats[255].item()) == (0.0, 1.0)
    back = images.to_bytes(floats)
    assert back.dtype == torch.uint8
    assert torch.equal(back, every)


def test_bytes_are_the_nearest_and_values_outside_are_cut() -> None:
    x = torch.tensor([-1.0, 0.4 / 255, 0.6 / 255, 254.4 / 255, 2.0])
    assert images.to_bytes(x).tolist() == [0, 0, 1, 254, 255]


@pytest.mark.parametrize("channels", [1, 3])
def test_png_decodes_to_the_same_pixels(channels: int) -> None:
    pixels = torch.randint(256, (channels, 5, 7), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    picture = Image.open(io.BytesIO(images.png(images.to_float(pixels))))
    assert picture.format == "PNG"
    assert picture.size == (7, 5)
    seen = torch.from_numpy(np.array(picture))
    assert torch.equal(seen, pixels[0] if channels == 1 else pixels.permute(1, 2, 0))


def test_png_draws_each_pixel_as_a_square() -> None:
    x = torch.tensor([[[0.0, 1.0]]])
    seen = np.array(Image.open(io.BytesIO(images.png(x, scale=2))))
    assert seen.tolist() == [[0, 0, 255, 255], [0, 0, 255, 255]]


def test_png_takes_an_input_with_gradient() -> None:
    x = torch.zeros(1, 2, 2, requires_grad=True)
    assert images.png(x) == images.png(torch.zeros(1, 2, 2))
