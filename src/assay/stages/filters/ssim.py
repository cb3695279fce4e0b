"""Structural similarity to the clean parent."""

from torch import Tensor

from assay.core import images
from assay.core.cases import Cases
from assay.core.registry import register
from assay.stages.filters.levels import level
from assay.stages.filters.measures import check_images, measured
from assay.subjects.bench import Bench


@register("filter", paper="TwinFuzz 2026")
def ssim(bench: Bench, cases: Cases, *, least: float | None = None, keep: float | None = None) -> Tensor:
    """The structural similarity to the seed is at least ``least``, or the level that keeps the share ``keep`` of seeds.

    That level is fixed on the seeds (0.6 of them) and holds for the cases. Images are compared in the range 0 to 1; a
    case without column ``seed_x`` is its own seed.
    """
    # Paper: similarity chooses the seeds; its level was not found. Here: the level that keeps 60 % of them.
    check_images(bench, "ssim", "close")
    values = measured(bench, images.ssim, cases.x, cases.parent)
    return values >= level(bench, "ssim", values, keep=keep, given=least)
