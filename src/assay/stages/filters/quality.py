"""The quality filter that fits the kind of input."""

from collections.abc import Callable

from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.registry import register
from assay.stages.filters.close import close
from assay.stages.filters.ssim import ssim
from assay.subjects.bench import Bench

KINDS: dict[str, Callable[..., Tensor]] = {"image": ssim, "vector": close}


@register("filter", paper="TwinFuzz 2026")
def quality(bench: Bench, cases: Cases, *, keep: float | None = None, least: float | None = None) -> Tensor:
    """As like its seed as the best share ``keep`` of the seeds: by structural similarity for images, else by distance.

    For images ``least`` asks for a similarity instead of a share.
    """
    judge = KINDS.get(bench.target.spec.kind, close)  # a distance fits every fixed shape
    if least is None:
        return judge(bench, cases, keep=keep)
    if judge is not ssim:
        raise UsageError("quality(least=…) is a similarity of images, and this target takes vectors; use close(most=…)")
    return judge(bench, cases, keep=keep, least=least)
