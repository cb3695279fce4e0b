"""How early an order of tests meets the failing ones."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.core.randomness import Stream

DRAWN = 100  # random orders beside every other


@dataclass(frozen=True, slots=True)
class Measures:
    """Of an order of n tests: APFD, the same between its bounds, and the faults among its first k.

    A fault is a failing test. ``apfd`` is None without a fault, ``apfd_norm`` also where every test is one: all orders
    are then equal. ``share`` of the first k are faults; they are the part ``found`` of all faults and the part ``rate``
    (fault-detection rate) of what the best order has among its first k.
    """

    apfd: float | None
    apfd_norm: float | None
    k: int
    faults: float
    share: float
    found: float | None
    rate: float | None

    def to_json(self) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in self.__slots__}
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in told.items()}


NUMBERS = ("apfd", "apfd_norm", "faults", "share", "found", "rate")


@dataclass(frozen=True, slots=True)
class Chance:
    """What orders drawn at random reach: the expected value, and mean and standard deviation of those ``drawn``."""

    expected: Measures
    mean: Measures
    spread: Measures
    drawn: int = DRAWN

    def to_json(self) -> dict[str, Any]:
        parts = {name: getattr(self, name).to_json() for name in ("expected", "mean", "spread")}
        return {"drawn": self.drawn, **parts}


def apfd(failing: Tensor) -> float | None:
    """Average percentage of faults detected by tests in this order, ``failing`` (n,) says which fail; None without any.

    >>> apfd(torch.tensor([True, False, False, True]))
    0.5
    """
    n, ranks = len(failing), failing.nonzero().flatten() + 1
    m = len(ranks)
    return 1 - int(ranks.sum()) / (m * n) + 1 / (2 * n) if m else None


def bounds(faults: int, n: int) -> tuple[float, float]:
    """APFD of the worst and the best order: all faults last, all faults first."""
    return faults / (2 * n), 1 - faults / (2 * n)


def measured(failing: Tensor, k: int) -> Measures:
    """The measures of tests in this order, of which those ``failing`` (n,) fail."""
    n, m = len(failing), int(failing.sum())
    return _measures(apfd(failing), int(failing[:k].sum()), n, m, k)


def chance(failing: Tensor, k: int, rng: Stream, drawn: int = DRAWN) -> Chance:
    """What an order drawn at random reaches on these tests."""
    n, m = len(failing), int(failing.sum())
    k = min(k, n)
    expected = _measures(0.5 if m else None, k * m / n, n, m, k)
    orders = (torch.randperm(n, generator=rng.at(i).generator()) for i in range(drawn))
    each = [measured(failing[order], k) for order in orders]
    mean, spread = (Measures(k=k, **_over(each, how)) for how in (statistics.fmean, statistics.stdev))
    return Chance(expected, mean, spread, drawn)


def _over(each: list[Measures], how: Callable[[list[float]], float]) -> dict[str, Any]:
    """One number made of those of several orders, for each measure that is defined."""
    columns = {name: [getattr(one, name) for one in each] for name in NUMBERS}
    return {name: None if None in column else how(column) for name, column in columns.items()}


def _measures(value: float | None, faults: float, n: int, m: int, k: int) -> Measures:
    k = min(k, n)
    low, high = bounds(m, n)
    # Rounding must not leave the bounds: the worst order is 0, not a little below.
    between = None if value is None or m == n else min(1.0, max(0.0, (value - low) / (high - low)))
    return Measures(value, between, k, faults, faults / k, faults / m if m else None, faults / min(k, m) if m else None)
