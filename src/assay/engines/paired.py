"""Two models on the same inputs: how often only one of them is right, and what that says."""

from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from assay.core.errors import NothingToTest, UsageError
from assay.core.stats import difference_needed, mcnemar, tango


@dataclass(frozen=True, slots=True)
class Paired:
    """The accuracy of a first model less that of a second, over the same ``n`` inputs.

    ``b`` of them are right for the first only, ``c`` for the second only; the others say nothing of the difference.
    ``ci95`` is Tango's score interval, ``p`` the exact one of McNemar's test that there is no difference. ``interval``
    is of the level that was asked for; where the bound lies in it, ``needed`` inputs would decide in 8 of 10 repeats,
    if the difference is what it looks like. It is None where the bound lies outside, or is what was measured.
    """

    n: int
    b: int
    c: int
    difference: float
    ci95: tuple[float, float]
    p: float
    needed: int | None
    interval: tuple[float, float]

    def to_json(self) -> dict[str, Any]:
        return {key: _rounded(value) for key, value in asdict(self).items()}


def paired(right_a: Tensor, right_b: Tensor, *, bound: float = 0.0, level: float = 0.95) -> Paired:
    """Compare two models by which rows each gets right, (N,) bool both and of the same inputs in the same order.

    >>> import torch
    >>> old = torch.ones(100, dtype=torch.bool)
    >>> paired(old, old & (torch.arange(100) >= 10)).difference
    0.1
    """
    if right_a.shape != right_b.shape or right_a.dim() != 1:
        raise UsageError(
            f"models are compared on the same inputs, got {tuple(right_a.shape)} and {tuple(right_b.shape)}"
        )
    if not len(right_a):
        raise NothingToTest("there is no input on which both models were measured")
    one, other = right_a.bool().cpu(), right_b.bool().cpu()
    return of_counts(int((one & ~other).sum()), int((other & ~one).sum()), len(one), bound=bound, level=level)


def of_counts(b: int, c: int, n: int, *, bound: float = 0.0, level: float = 0.95) -> Paired:
    """The same from counts."""
    low, high = tango(b, c, n, level)
    needed = difference_needed(b / n, c / n, bound, level) if low < bound < high else None
    return Paired(n, b, c, (b - c) / n, tango(b, c, n), mcnemar(b, c), needed, (low, high))


def _rounded(value: Any) -> Any:
    if isinstance(value, tuple):
        return [round(end, 6) for end in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
