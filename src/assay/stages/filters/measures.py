"""What quality filters measure cases by, on the target's device and a chunk at a time."""

from collections.abc import Callable

from torch import Tensor

from assay.core.errors import UsageError
from assay.core.images import unit_range
from assay.subjects.bench import Bench


def measured(bench: Bench, measure: Callable[..., Tensor], *columns: Tensor) -> Tensor:
    """``measure`` of inputs brought to the range 0 to 1, one number a case, where the first column lies, (N,)."""
    device, bounds = bench.target.device, bench.target.spec.bounds

    def work(*block: Tensor) -> Tensor:
        return measure(*(unit_range(x.to(device), bounds) for x in block))

    return bench.chunks.map(work, *columns).to(columns[0].device)


def check_images(bench: Bench, name: str, instead: str) -> None:
    """Refuse a measure of images where the target takes something else."""
    if bench.target.spec.kind != "image":
        raise UsageError(f"{name} needs images, and this target takes vectors; use the filter {instead}")
