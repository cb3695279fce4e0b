"""Common corruptions against hand-made kernels, Pillow, scipy and colorsys; severity means more of it."""

import colorsys
import io
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage, stats
from torch import Tensor

from assay.core import blurs, images, jpeg
from assay.core.cases import InputSpec
from assay.core.corruptions import KINDS, SEVERITIES, corrupted
from assay.core.errors import UsageError
from assay.core.randomness import Rows, Stream
from assay.recipes.suite import attacks_of
from assay.recipes.suites import CORRUPTIONS
from assay.stages.attacks.corrupt import corrupt
from assay.subjects.sources.module import ModuleTarget

Shape = tuple[int, int, int]
RANDOM = ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "motion_blur", "elastic")
BLURS = ("defocus_blur", "gaussian_blur", "motion_blur", "zoom_blur", "elastic", "pixelate")


def rows(n: int, seed: int = 0) -> Rows:
    return Stream(seed).rows(torch.arange(n))


def natural(n: int, shape: Shape, seed: int = 0) -> Tensor:
    """Images with the spectrum of photographs (amplitude falls as 1 / frequency), channels alike, in [0, 1]."""
    channels, height, width = shape
    rng = torch.Generator().manual_seed(seed)
    both = torch.randn(n, 1, height, width, generator=rng) + 0.4 * torch.randn(
        n, channels, height, width, generator=rng
    )
    down, across = torch.fft.fftfreq(height)[:, None], torch.fft.rfftfreq(width)
    frequency = (down**2 + across**2).sqrt().clamp_min(1 / max(height, width))
    x: Tensor = torch.fft.irfft2(torch.fft.rfft2(both) / frequency, s=(height, width))
    x = x - x.mean((1, 2, 3), keepdim=True)
    return (0.5 + 0.2 * x / x.std((1, 2, 3), keepdim=True)).clamp(0, 1)


def kinds_for(channels: int) -> list[str]:
    return [kind for kind in KINDS if kind != "saturate" or channels == 3]


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 96, 110), (3, 224, 224)], ids=str)
def test_every_severity_changes_more_than_the_one_before(shape: Shape) -> None:
    x = natural(64 if shape[1] < 64 else 4, shape)
    for kind in kinds_for(shape[0]):
        change = [float((corrupted(x, kind, s, rows(len(x))) - x).square().mean()) for s in SEVERITIES]
        assert change[0] > 1e-6, kind
        assert all(more > less for less, more in pairwise(change)), (kind, change)


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("shape", [(3, 13, 9), (3, 70, 66)], ids=str)
def test_a_row_depends_on_itself_and_its_key_alone(kind: str, shape: Shape) -> None:
    x, rng = natural(5, shape), rows(5)
    torch.manual_seed(1)
    whole = corrupted(x, kind, 3, rng)
    torch.manual_seed(2)  # the global generator must play no part
    assert torch.equal(whole, corrupted(x, kind, 3, rng))
    some = torch.tensor([3, 1])
    assert torch.allclose(corrupted(x[some], kind, 3, rng[some]), whole[some], atol=1e-6)
    assert torch.equal(corrupted(x, kind, 3, rows(5, seed=1)), whole) == (kind not in RANDOM)


@pytest.mark.parametrize("channels", [1, 3])
def test_any_draws_a_kind_and_0_a_severity_for_each_image(channels: int) -> None:
    """Each of 900 images is what one of the kinds makes of it alone, and all pairs of kind and severity come up."""
    x, rng = natural(1, (channels, 13, 11)).expand(900, -1, -1, -1), rows(900)
    made = corrupted(x, "any", 0, rng)
    met = torch.zeros(900, dtype=torch.int64)
    pairs = [(kind, severity) for kind in kinds_for(channels) for severity in SEVERITIES]
    seen = set()
    for kind, severity in pairs:
        fits = (corrupted(x, kind, severity, rng) - made).abs().flatten(1).amax(1) < 1e-5
        met += fits
        seen |= {(kind, severity)} if bool(fits.any()) else set()
    assert int(met.amin()) == 1
    assert float((met == 1).float().mean()) > 0.95, "two kinds rarely make the same"
    assert seen == set(pairs)
    some = torch.tensor([7, 3])
    assert torch.allclose(corrupted(x[some], "any", 0, rng[some]), made[some], atol=1e-6)


def test_any_of_one_severity_and_a_kind_of_any_severity() -> None:
    x, rng = natural(60, (3, 12, 12)), rows(60)
    fixed = corrupted(x, "any", 2, rng)
    own = [(corrupted(x, kind, 2, rng) - fixed).abs().flatten(1).amax(1) < 1e-5 for kind in KINDS]
    assert bool(torch.stack(own).any(0).all())
    jpeg_only = corrupted(x, "jpeg", 0, rng)
    own = [(corrupted(x, "jpeg", level, rng) - jpeg_only).abs().flatten(1).amax(1) < 1e-5 for level in SEVERITIES]
    assert bool(torch.stack(own).any(0).all())
    assert all(bool(one.any()) for one in own)


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_bounds_other_than_0_and_1_are_mapped_there_and_back(kind: str, dtype: torch.dtype) -> None:
    target = ModuleTarget(torch.nn.Flatten(), InputSpec((3, 16, 16), (-1.0, 3.0), ("a", "b")))
    unit = natural(3, (3, 16, 16)).to(dtype)
    x, y = unit * 4 - 1, torch.zeros(3, dtype=torch.int64)
    made = corrupt(target, x, y, rng=rows(3), kind=kind, severity=5)
    assert made.dtype == dtype
    assert made.min() >= -1
    assert made.max() <= 3
    if dtype != torch.bfloat16:
        assert torch.allclose((made + 1) / 4, corrupted(unit, kind, 5, rows(3)), atol=1e-5)


@pytest.mark.parametrize("kind", list(KINDS))
def test_no_images_are_none_and_inputs_stay_as_they_are(kind: str) -> None:
    assert corrupted(torch.zeros(0, 3, 8, 8), kind, 1, rows(0)).shape == (0, 3, 8, 8)
    x = natural(2, (3, 8, 8))
    before = x.clone()
    made = corrupted(x, kind, 5, rows(2))
    assert torch.equal(x, before)
    assert made.data_ptr() != x.data_ptr()


def test_what_cannot_be_is_refused() -> None:
    x = torch.zeros(1, 1, 8, 8)
    with pytest.raises(UsageError, match="gaussian_noise"):
        corrupted(x, "gausian_noise", 1, rows(1))
    for severity in (-1, 6):
        with pytest.raises(UsageError, match=f"not {severity}"):
            corrupted(x, "contrast", severity, rows(1))
    for shape in ((1, 64), (1, 1, 3, 9)):
        with pytest.raises(UsageError, match="corruptions need images"):
            corrupted(torch.zeros(shape), "contrast", 1, rows(1))
    with pytest.raises(UsageError, match="colour"):
        corrupted(x, "saturate", 1, rows(1))


def test_constants_follow_the_size_of_the_image() -> None:
    blur, noise = KINDS["gaussian_blur"], KINDS["gaussian_noise"]
    assert [blur.constants(5, side) for side in (8, 32, 63)] == [[1.0]] * 3
    assert [blur.constants(5, side) for side in (224, 112, 448)] == [[6.0], [3.0], [12.0]]
    assert blur.constants(5, 64) == [2.0]  # a third, not two sevenths
    assert (noise.constants(3, 63), noise.constants(3, 64)) == ([0.08], [0.18])
    assert KINDS["elastic"].constants(5, 112) == [29.28 / 4, 1.22, 2.44]


def test_the_suite_has_every_kind_that_grey_images_have() -> None:
    assert CORRUPTIONS.each
    labels = list(attacks_of("corruptions", {}))
    assert labels == [f"corrupt(kind={k}, severity={s})" for k in kinds_for(1) for s in SEVERITIES]


# Noise


@pytest.mark.parametrize("level", [0.3, 0.5])
def test_noise_has_its_moments(level: float) -> None:
    x = torch.full((4, 1, 256, 256), level)
    made = {kind: corrupted(x, kind, 1, rows(4)) - level for kind in RANDOM[:4]}
    deviation = {"gaussian_noise": 0.08, "shot_noise": (level / 60) ** 0.5, "speckle_noise": 0.15 * level}
    for kind, expected in deviation.items():
        assert float(made[kind].mean()) == pytest.approx(0, abs=1e-3), kind
        assert float(made[kind].std()) == pytest.approx(expected, rel=0.01), kind
    share = [float((made["impulse_noise"] == value - level).float().mean()) for value in (0.0, 1.0)]
    assert share == [pytest.approx(0.015, rel=0.07)] * 2
    assert float((made["impulse_noise"] == 0).float().mean()) == pytest.approx(0.97, abs=2e-3)


def test_shot_noise_counts_photons() -> None:
    counts = corrupted(torch.full((4, 1, 64, 64), 0.4), "shot_noise", 5, rows(4)) * 3
    assert torch.allclose(counts, counts.round(), atol=1e-5)
    assert corrupted(torch.zeros(4, 1, 64, 64), "shot_noise", 5, rows(4)).max() == 0


@pytest.mark.parametrize("rate", [0.0, 0.2, 3.0, 9.9, 10.1, 40.0, 500.0])
def test_poisson_numbers_are_quantiles(rate: float) -> None:
    rng = rows(20)
    drawn = rng.poisson(torch.full((20, 5000), rate)).flatten()
    level = (rng.uniform((5000,)).double() + 2.0**-25).flatten()
    exact = torch.from_numpy(np.asarray(stats.poisson.ppf(level.numpy(), rate)))
    off = (drawn - exact).abs()
    assert off.max() <= (1 if rate > 10 else 0)
    assert (off > 0).double().mean() < 0.003


# Blurs and pixelation


@pytest.mark.parametrize("kind", BLURS)
@pytest.mark.parametrize("side", [8, 32, 80])
def test_a_constant_image_stays_constant(kind: str, side: int) -> None:
    x = torch.full((2, 3, side, side + 3), 0.3)
    for severity in SEVERITIES:
        assert torch.allclose(corrupted(x, kind, severity, rows(2)), x, atol=1e-5)


def impulse(side: int) -> Tensor:
    x = torch.zeros(1, 1, side, side, dtype=torch.float64)
    x[..., side // 2, side // 2] = 1
    return x


def test_gaussian_blur_of_an_impulse_is_the_kernel() -> None:
    line = np.exp(-(np.arange(-4, 5) ** 2) / 2)
    made = blurs.gaussian_blur(impulse(13), 1.0)[0, 0]
    assert torch.allclose(made[2:11, 2:11], torch.from_numpy(np.outer(line, line) / line.sum() ** 2))
    assert made.count_nonzero() == 81


@pytest.mark.parametrize("sigma", [0.4, 1.3, 6.0])
def test_gaussian_blur_agrees_with_scipy(sigma: float) -> None:
    x = natural(2, (1, 30, 17)).double()
    expected = ndimage.gaussian_filter(x.numpy(), (0, 0, sigma, sigma), mode="nearest", truncate=4.0)
    assert torch.allclose(blurs.gaussian_blur(x, sigma), torch.from_numpy(np.asarray(expected)))


def test_defocus_of_an_impulse_is_the_disc() -> None:
    plus = torch.tensor([[0.0, 1, 0], [1, 1, 1], [0, 1, 0]], dtype=torch.float64) / 5
    assert torch.allclose(blurs.defocus_blur(impulse(9), 1.0, 0.05)[0, 0, 3:6, 3:6], plus)
    soft = blurs.defocus_blur(impulse(9), 0.5, 0.6)[0, 0, 3:6, 3:6]  # a disc of one pixel leaves its softening
    edge = np.exp(-1 / 0.72)
    line = torch.tensor([edge, 1, edge], dtype=torch.float64) / (1 + 2 * edge)
    assert torch.allclose(soft, torch.outer(line, line))
    assert int((blurs.disc(10, 0.01) > 1e-6).sum()) == 317  # lattice points in a circle of radius 10


def test_motion_of_an_impulse_is_half_a_bell_along_the_angle() -> None:
    weights = np.exp(-(np.arange(5) ** 2) / (2 * 1.5**2))
    weights /= weights.sum()
    angle = torch.deg2rad(torch.tensor([0.0, 45.0]))
    flat, tilted = blurs.motion_blur(impulse(13).expand(2, 1, 13, 13), angle, 2, 1.5)[:, 0]
    assert flat[6, 2:7].flip(0).tolist() == pytest.approx(weights.tolist())  # reads to the right: the trace goes left
    # Steps of cos 45° round to 0, 1, 1, 2, 3.
    assert tilted.diag()[3:7].flip(0).tolist() == pytest.approx([weights[0], weights[1] + weights[2], *weights[3:]])
    assert [float(flat.sum()), float(tilted.sum())] == pytest.approx([1, 1])


def test_zoom_is_about_the_centre_and_reads_between_pixels() -> None:
    x = torch.arange(9.0).expand(1, 1, 9, 9)  # a ramp: zoomed by z about 4 it is 4 + (i - 4) / z
    expected = (2 * x + 4 + (x - 4) / 1.1 + 4 + (x - 4) / 1.2) / 4
    assert torch.allclose(blurs.zoom_blur(x, 1.2, 0.1), expected, atol=1e-5)


@pytest.mark.parametrize("side", [28, 32, 96, 224])
def test_pixelate_agrees_with_pillow(side: int) -> None:
    x = (natural(1, (1, side, side)) * 255).round()
    picture = Image.fromarray(x[0, 0].numpy().astype(np.uint8))
    for severity in SEVERITIES:
        share, _ = KINDS["pixelate"].constants(severity, side)
        small = picture.resize((int(side * share), int(side * share)), Image.Resampling.BOX)
        expected = np.asarray(small.resize((side, side), Image.Resampling.BOX))
        made = corrupted(x / 255, "pixelate", severity, rows(1))[0, 0] * 255
        assert (
            made - torch.from_numpy(expected.astype(np.float32))
        ).abs().max() <= 1.01  # Pillow rounds to bytes twice


def test_pixelate_by_two_is_the_mean_of_four() -> None:
    x = torch.arange(16.0).view(1, 1, 4, 4)
    assert blurs.pixelate(x, 2, 2)[0, 0, ::2, ::2].tolist() == [[2.5, 4.5], [10.5, 12.5]]
    assert blurs.pixelate(x, 2, 4)[0, 0, 0].tolist() == [2.0, 3.0, 4.0, 5.0]


def test_elastic_without_jitter_moves_by_the_smooth_field() -> None:
    ramp = torch.arange(40.0).expand(3, 1, 40, 40)
    moved = (blurs.elastic(ramp, rows(3), 2.0, 2.0, 0.0) - ramp)[..., 8:32, 8:32]
    # Uniform noise of deviation 2 / √3 blurred by sigma 2 has 1 / (2 √π sigma) of it left.
    assert float(moved.std()) == pytest.approx(2 / 3**0.5 / (4 * np.pi**0.5), rel=0.1)
    assert float((moved[..., 1:] - moved[..., :-1]).abs().max()) < 0.15


def test_elastic_without_a_field_is_affine() -> None:
    ramp = torch.arange(40.0).expand(3, 1, 40, 40)
    moved = (blurs.elastic(ramp, rows(3), 0.0, 1.0, 2.0) - ramp)[..., 12:28, 12:28]
    assert 0.1 < moved.abs().max() < 4
    assert (moved[..., 2:] - 2 * moved[..., 1:-1] + moved[..., :-2]).abs().max() < 1e-4
    assert (moved[..., 2:, :] - 2 * moved[..., 1:-1, :] + moved[..., :-2, :]).abs().max() < 1e-4


def test_images_are_read_between_pixels() -> None:
    x = torch.tensor([[[[1.0, 3.0, 5.0], [7.0, 9.0, 11.0]]]])
    across, down = torch.tensor([[[0.5, 2.0, 3.0]]]), torch.tensor([[[0.0], [0.5]]])
    assert images.sample(x, across, down, "border")[0, 0].tolist() == [[2.0, 5.0, 5.0], [5.0, 8.0, 8.0]]
    assert images.sample(x, across, down, "zeros")[0, 0].tolist() == [[2.0, 5.0, 0.0], [5.0, 8.0, 0.0]]


# Colour


def test_contrast_moves_towards_the_mean_of_each_channel() -> None:
    x = torch.tensor([[0.0, 1.0, 0.2, 0.4], [0.5, 0.5, 0.5, 0.5]]).view(1, 2, 1, 4).expand(1, 2, 4, 4)
    made = corrupted(x, "contrast", 5, rows(1))
    assert made[0, :, 0].tolist() == [pytest.approx([0.34, 0.49, 0.37, 0.4]), pytest.approx([0.5] * 4)]


def test_brightness_and_saturation_agree_with_colorsys() -> None:
    x = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0)).double()
    x[0, :, 0, :4] = torch.tensor([[0.0, 0.3, 1.0, 1.0]] * 3)  # black, grey, white, and one pure colour
    x[0, 1:, 0, 3] = 0
    changes: dict[str, Callable[[float, float, float], tuple[float, float, float]]] = {
        "brightness": lambda h, s, v: (h, s, min(v + 0.15, 1)),
        "saturate": lambda h, s, v: (h, min(s * 1.75 + 0.05, 1), v),
    }
    for kind, change in changes.items():
        made = corrupted(x, kind, 3, rows(1))[0].flatten(1).T.tolist()
        for before, after in zip(x[0].flatten(1).T.tolist(), made, strict=True):
            assert after == pytest.approx(colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*before))), abs=1e-9)


# JPEG


def by_pillow(x: Tensor, quality: int) -> Tensor:
    def one(picture: Tensor) -> Tensor:
        pixels = picture[0] if len(picture) == 1 else picture.permute(1, 2, 0)
        file = io.BytesIO()
        Image.fromarray((pixels.numpy() * 255).round().astype(np.uint8)).save(file, "JPEG", quality=quality)
        back = torch.from_numpy(np.array(Image.open(file))).float() / 255
        return back[None] if back.dim() == 2 else back.permute(2, 0, 1)

    return torch.stack([one(picture) for picture in x])


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 101, 77), (1, 9, 15)], ids=str)
@pytest.mark.parametrize("quality", [7, 15, 25, 40, 50, 80, 95])
def test_jpeg_loses_what_pillow_loses(shape: Shape, quality: int) -> None:
    x = (natural(8, shape) * 255).round() / 255
    made, expected = jpeg.round_trip(x, quality), by_pillow(x, quality)
    assert float((made - expected).abs().mean()) * 255 < 0.75
    assert float((made - expected).abs().mean()) < 0.35 * float((x - expected).abs().mean())
    assert torch.equal((made * 255).round() / 255, made)  # bytes


def test_jpeg_of_finest_quality_keeps_a_grey_image_within_a_step() -> None:
    x = (natural(4, (1, 24, 24)) * 255).round() / 255
    assert float((jpeg.round_trip(x, 100) - x).abs().max()) * 255 <= 1.01
