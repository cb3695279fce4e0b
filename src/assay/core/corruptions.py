"""The common corruptions of Hendrycks and Dietterich 2019 without weather, on image batches (N, C, H, W) in [0, 1].

Constants: the published ones of CIFAR-10-C (32 px) for images whose shorter side is below 64 px, of ImageNet-C (224 px)
from there on. Those of ImageNet-C that are lengths in pixels shrink and grow with the shorter side, those of CIFAR-10-C
stay, because a blur of less than half a pixel is none. Where a severity did not exceed the one before it, the constants
are ours and the table says so. Results stay real numbers; the published sets round them to bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import radians

import torch
from torch import Tensor

from assay.core import blurs, jpeg
from assay.core.errors import UsageError
from assay.core.randomness import Rows
from assay.core.specs import did_you_mean

SEVERITIES = (1, 2, 3, 4, 5)
ANY = "any"  # kind
_LARGE = 64  # shorter side from which the constants of ImageNet-C hold
_LEAST = 4  # shorter side below which mirrored borders do not fit


def corrupted(x: Tensor, kind: str, severity: int, rng: Rows) -> Tensor:
    """Images (N, C, H, W) in [0, 1] after a corruption, again in [0, 1].

    Of the kind ``any`` each image has one of its own; so has it a severity of its own, from 1 to 5, where it is 0.
    """
    if kind not in (*KINDS, ANY):
        raise UsageError(f"unknown corruption {kind!r}; {did_you_mean(kind, (*KINDS, ANY))}")
    if severity not in (0, *SEVERITIES):
        raise UsageError(f"a corruption has severity 1, 2, 3, 4 or 5, or 0 for any of them, not {severity}")
    if x.dim() != 4 or min(x.shape[-2:]) < _LEAST:
        raise UsageError(f"corruptions need images of {_LEAST} or more pixels a side, not {tuple(x.shape[1:])}")
    if kind == "saturate" and x.shape[1] != 3:
        raise UsageError(f"saturate needs colour images of 3 channels, these have {x.shape[1]}")
    if not len(x):
        return x.clone()
    if kind == ANY or not severity:
        return _drawn(x, kind, severity, rng)
    chosen = KINDS[kind]
    return chosen.apply(x, rng, *chosen.constants(severity, min(x.shape[-2:]))).clamp(0.0, 1.0)


def _drawn(x: Tensor, kind: str, severity: int, rng: Rows) -> Tensor:
    """Each image after a corruption that is drawn for it."""
    fitting = [name for name in KINDS if name != "saturate" or x.shape[1] == 3] if kind == ANY else [kind]
    kinds = rng.at(-7).integers((), len(fitting))
    levels = rng.at(-8).integers((), len(SEVERITIES)) + 1 if not severity else torch.full_like(kinds, severity)
    out = torch.empty_like(x)
    for which, level in torch.stack([kinds, levels], 1).unique(dim=0).tolist():
        rows = ((kinds == which) & (levels == level)).nonzero().squeeze(1)
        out[rows] = corrupted(x[rows], fitting[which], level, rng[rows])
    return out


def _gaussian_noise(x: Tensor, rng: Rows, deviation: float) -> Tensor:
    return x + deviation * rng.normal(tuple(x.shape[1:])).to(x.dtype)


def _shot_noise(x: Tensor, rng: Rows, photons: float) -> Tensor:
    return rng.poisson(x.clamp_min(0.0) * photons) / photons


def _impulse_noise(x: Tensor, rng: Rows, share: float) -> Tensor:
    shape = tuple(x.shape[1:])
    salt = (rng.at(1).uniform(shape) < 0.5).to(x.dtype)
    return torch.where(rng.at(0).uniform(shape) < share, salt, x)


def _speckle_noise(x: Tensor, rng: Rows, deviation: float) -> Tensor:
    return x + x * deviation * rng.normal(tuple(x.shape[1:])).to(x.dtype)


def _gaussian_blur(x: Tensor, rng: Rows, sigma: float) -> Tensor:
    return blurs.gaussian_blur(x, sigma)


def _defocus_blur(x: Tensor, rng: Rows, radius: float, soften: float) -> Tensor:
    return blurs.defocus_blur(x, radius, soften)


def _motion_blur(x: Tensor, rng: Rows, reach: float, sigma: float) -> Tensor:
    return blurs.motion_blur(x, rng.uniform((), -radians(45), radians(45)), reach, sigma)


def _zoom_blur(x: Tensor, rng: Rows, most: float, stride: float) -> Tensor:
    return blurs.zoom_blur(x, most, stride)


def _contrast(x: Tensor, rng: Rows, share: float) -> Tensor:
    return torch.lerp(x.mean((2, 3), keepdim=True), x, share)


def _brightness(x: Tensor, rng: Rows, more: float) -> Tensor:
    """The value of hue, saturation and value raised: channels keep their ratios, black turns grey."""
    value = x.amax(1, keepdim=True)
    raised = (value + more).clamp_max(1.0)
    return torch.where(value > 0, x * (raised / value.clamp_min(1e-12)), raised)


def _saturate(x: Tensor, rng: Rows, times: float, more: float) -> Tensor:
    """The saturation of hue, saturation and value raised; a grey pixel, whose hue counts as red, turns reddish."""
    value = x.amax(1, keepdim=True)
    gap = value - x.amin(1, keepdim=True)
    raised = (gap / value.clamp_min(1e-12) * times + more).clamp_max(1.0) * value
    hue = torch.where(gap > 0, (value - x) / gap.clamp_min(1e-12), x.new_tensor([0.0, 1.0, 1.0]).view(1, 3, 1, 1))
    return value - raised * hue


def _pixelate(x: Tensor, rng: Rows, share: float, fewer: float) -> Tensor:
    return blurs.pixelate(x, *(max(1, min(int(side * share), side - int(fewer))) for side in x.shape[-2:]))


def _jpeg(x: Tensor, rng: Rows, quality: float) -> Tensor:
    return jpeg.round_trip(x, int(quality))


Five = tuple[float, float, float, float, float]


@dataclass(frozen=True, slots=True)
class Corruption:
    """A corruption and its constants: a line of five severities for each, for small and for large images.

    ``lengths`` are the powers of the side by which each constant of the large table grows; none where they do not.
    """

    apply: Callable[..., Tensor]
    small: tuple[Five, ...]
    large: tuple[Five, ...]
    lengths: tuple[int, ...] = ()

    def constants(self, severity: int, side: int) -> list[float]:
        if side < _LARGE:
            return [line[severity - 1] for line in self.small]
        scale = max(side / 224, 1 / 3)  # below a third the smallest disc is a single pixel
        powers = self.lengths or (0,) * len(self.large)
        return [line[severity - 1] * scale**power for line, power in zip(self.large, powers, strict=True)]


KINDS = {
    "gaussian_noise": Corruption(  # standard deviation
        _gaussian_noise, ((0.04, 0.06, 0.08, 0.09, 0.10),), ((0.08, 0.12, 0.18, 0.26, 0.38),)
    ),
    "shot_noise": Corruption(  # photons of a white pixel
        _shot_noise, ((500, 250, 100, 75, 50),), ((60, 25, 12, 5, 3),)
    ),
    "impulse_noise": Corruption(  # share of values that turn black or white
        _impulse_noise, ((0.01, 0.02, 0.03, 0.05, 0.07),), ((0.03, 0.06, 0.09, 0.17, 0.27),)
    ),
    "speckle_noise": Corruption(  # standard deviation, times the value
        _speckle_noise, ((0.06, 0.10, 0.12, 0.16, 0.20),), ((0.15, 0.20, 0.35, 0.45, 0.60),)
    ),
    "defocus_blur": Corruption(  # radius of the disc; sigma that softens its edge
        _defocus_blur,
        ((0.3, 0.4, 0.5, 1.0, 1.5), (0.4, 0.5, 0.6, 0.2, 0.1)),
        ((3, 4, 6, 8, 10), (0.1, 0.5, 0.5, 0.5, 0.5)),
        (1, 0),
    ),
    "gaussian_blur": Corruption(  # sigma
        _gaussian_blur, ((0.4, 0.6, 0.7, 0.8, 1.0),), ((1, 2, 3, 4, 6),), (1,)
    ),
    # Paper: sigma 2 at severities 3 and 4 of CIFAR-10-C, whose reaches of 6 and 8 both cut off nothing. Here: 2.25.
    "motion_blur": Corruption(  # half the length of the line; sigma along it
        _motion_blur,
        ((6, 6, 6, 8, 9), (1.0, 1.5, 2.0, 2.25, 2.5)),
        ((10, 15, 15, 15, 20), (3, 5, 8, 12, 15)),
        (1, 1),
    ),
    "zoom_blur": Corruption(  # largest zoom; steps to it
        _zoom_blur,
        ((1.06, 1.11, 1.15, 1.20, 1.25), (0.01, 0.01, 0.01, 0.01, 0.01)),
        ((1.11, 1.15, 1.20, 1.24, 1.30), (0.01, 0.01, 0.02, 0.02, 0.03)),
    ),
    # Paper: severities 1 and 2 (small: 1 to 4) have the wider affine maps and change more than the last. Here: ours for
    # those, growing up to the published ones.
    "elastic": Corruption(  # strength; sigma of the field; reach of the affine map
        blurs.elastic,
        ((1.0, 1.6, 2.2, 2.7, 3.2), (0.96, 0.96, 0.96, 0.96, 0.96), (0.3, 0.5, 0.7, 0.85, 0.96)),
        ((4.88, 8.54, 12.2, 17.08, 29.28), (2.44, 2.44, 2.44, 2.44, 2.44), (1.95, 3.42, 4.88, 4.88, 4.88)),
        (2, 1, 1),  # blurring by sigma makes the field weaker by sigma
    ),
    "contrast": Corruption(  # share that is left
        _contrast, ((0.75, 0.5, 0.4, 0.3, 0.15),), ((0.4, 0.3, 0.2, 0.1, 0.05),)
    ),
    "brightness": Corruption(  # what is added
        _brightness, ((0.05, 0.10, 0.15, 0.20, 0.30),), ((0.1, 0.2, 0.3, 0.4, 0.5),)
    ),
    # Paper: severities 1 and 2 take colour away, 3 to 5 add it. Here: all add, 3 to 5 (small: 4 and 5) as published.
    "saturate": Corruption(  # factor; what is added
        _saturate,
        ((1.25, 1.5, 1.75, 2.0, 2.5), (0.0, 0.0, 0.05, 0.1, 0.2)),
        ((1.3, 1.6, 2.0, 5.0, 20.0), (0.0, 0.0, 0.0, 0.1, 0.2)),
    ),
    "pixelate": Corruption(  # share of the side that is left; pixels lost at least, which only tiny images feel
        _pixelate,
        ((0.95, 0.9, 0.85, 0.75, 0.65), (1, 3, 4, 5, 6)),
        ((0.6, 0.5, 0.4, 0.3, 0.25), (1, 3, 4, 5, 6)),
    ),
    "jpeg": Corruption(  # quality
        _jpeg, ((80, 65, 58, 50, 40),), ((25, 18, 15, 10, 7),)
    ),
}
