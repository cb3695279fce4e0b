"""Common corruptions as an attack that asks nobody."""

import torch
from torch import Tensor

from assay.core.corruptions import corrupted
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.subjects.target import Target


@register("attack", paper="Hendrycks and Dietterich 2019")
def corrupt(
    target: Target, x: Tensor, y: Tensor, *, rng: Rows, kind: str = "gaussian_noise", severity: int = 3
) -> Tensor:
    """A common corruption of images at severity 1 to 5: noise, blur, contrast, brightness, pixelation, JPEG and more.

    ``kind``: gaussian_noise, shot_noise, impulse_noise, speckle_noise, defocus_blur, gaussian_blur, motion_blur,
    zoom_blur, elastic, contrast, brightness, saturate (colour images only), pixelate, jpeg, or any: each image has a
    kind of its own. With severity 0 each has a severity of its own.

    Formula: x' = clip(c(x, severity)), c the corruption; no model is asked.
    """
    low, high = target.spec.bounds
    unit = (x.detach() if x.dtype in (torch.float32, torch.float64) else x.detach().float()).sub(low).div(high - low)
    return corrupted(unit, kind, severity, rng).mul(high - low).add(low).to(x.dtype).clamp(low, high)
