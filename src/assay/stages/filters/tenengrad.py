"""Gradient energy: attack noise raises it."""

from torch import Tensor

from assay.core import images
from assay.core.cases import Cases
from assay.core.registry import register
from assay.stages.filters.levels import level
from assay.stages.filters.measures import check_images, measured
from assay.subjects.bench import Bench


@register("filter", paper="public code of TwinFuzz")
def tenengrad(bench: Bench, cases: Cases, *, most: float | None = 1200.0, keep: float | None = None) -> Tensor:
    """The sum of the image's Sobel gradients is below ``most``; with most=null, at the level that keeps ``keep``.

    Images are taken as grey ones in the range 0 to 1. The usual limit is meant for 28×28 pixels: it grows with them.
    """
    check_images(bench, "tenengrad", "close")
    values = measured(bench, images.tenengrad, cases.x)
    limit = level(bench, "tenengrad", values, keep=keep, given=most, low=True)
    return values <= limit if most is None else values < limit
