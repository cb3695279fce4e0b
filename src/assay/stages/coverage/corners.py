"""What lies outside the range of a neuron over the training data: corners, whole or in buckets."""

import math

import torch
from torch import Tensor

from assay.core.errors import UsageError
from assay.stages.coverage import Coverage
from assay.stages.coverage.bitmap import NONE, over_neurons
from assay.stages.coverage.profile import Profile, needed
from assay.subjects.observer import Observer, Seen

_PARTS = 1000  # DeepHunter's buckets are as wide as that part of the range


def check(name: str, std: float, buckets: int) -> None:
    """Refuse parameters without a meaning."""
    if not math.isfinite(std) or std < 0:
        raise UsageError(f"{name}: std must be 0 or more, got {std}")
    if buckets < 0:
        raise UsageError(f"{name}: buckets must be 0 (a corner is one cell) or more, got {buckets}")


def corners(
    observer: Observer, profile: Profile | None, name: str, std: float, buckets: int, *, both: bool
) -> Coverage:
    """Cells above each neuron's range widened by ``std`` deviations, and below it where ``both`` are asked for.

    Each side is one cell, or with buckets that many of a thousandth of the range each and one for all beyond. Neurons
    whose range is not finite have no cells, as in kmnc.
    """
    known = needed(profile, observer, name)
    more = std * known.std if std else torch.zeros_like(known.std)  # 0 times infinity would be no number
    low, high = known.low - more, known.high + more
    live = (high - low).isfinite()
    low, high = torch.where(live, low, -torch.inf), torch.where(live, high, torch.inf)  # nothing lies beyond
    width = (known.high - known.low) / _PARTS
    side = buckets + 1 if buckets else 1
    per = side * (2 if both else 1)
    first = torch.arange(observer.neurons, device=low.device) * per

    def bucket(beyond: Tensor) -> Tensor | int:
        """Which of its side a value lies in that is that far beyond the bound."""
        return (beyond / width).clamp_(0, buckets).nan_to_num_(buckets).to(torch.int64) if buckets else 0

    def reach(seen: Seen) -> Tensor:
        values = seen.neurons
        upper = first + (per - side)
        found = torch.where(values > high, upper + bucket(values - high), NONE)
        return torch.where(values < low, first + bucket(low - values), found) if both else found

    # A neuron of one value has buckets without width: whatever lies outside is beyond them all.
    counts = torch.where(width > 0, per, per // side) * live
    return over_neurons(observer, reach, per=per, counts=counts)
