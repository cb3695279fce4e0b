"""Which neurons are active, by the campaign's own criterion, and what weight comes into each."""

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.stages.coverage import Coverage
from assay.stages.coverage.bitmap import Bitmap
from assay.subjects.observer import Observer, Seen

SEED_COVERED = "seed_covered"  # the column of what a lane has covered since it came to its seed, (N, W)


def active(coverage: Coverage | None, seen: Seen) -> Tensor:
    """Which neurons each case covers, whatever was covered before, (N, W)."""
    width = seen.neurons.shape[1]
    cells = _bitmap(coverage, width)
    places = cells.reach(seen)
    places = torch.where(places < 0, width, places // (cells.cells // width))
    table = torch.zeros(len(seen), width + 1, dtype=torch.bool, device=places.device)
    return table.scatter_(1, places, True)[:, :width]


def covered(coverage: Coverage, width: int) -> Tensor:
    """Which neurons are covered by now, with all of their cells, (W,)."""
    return _bitmap(coverage, width).reached().view(width, -1).all(1)


def looked_at(lanes: Cases) -> Tensor:
    """Which lanes are at a case that they go out from, not at one that they made, (N,)."""
    return lanes.info["opening"] & ~lanes.info["ended"]


def incoming(observer: Observer, otherwise: float) -> Tensor:
    """The mean weight that comes into each neuron, on the CPU, (W,); ``otherwise`` where a layer has no weights."""
    parts = [
        torch.full((layer.width,), otherwise) if layer.weight is None else layer.weight.float().cpu()
        for layer in observer.each
    ]
    return torch.cat(parts) if parts else torch.zeros(0)


def _bitmap(coverage: Coverage | None, width: int) -> Bitmap:
    if not isinstance(coverage, Bitmap) or coverage.cells % width:
        raise UsageError("this asks which neurons are covered, and the criterion does not say; use one of neurons: nc")
    return coverage
