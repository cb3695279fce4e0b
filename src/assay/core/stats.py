"""Confidence in a share and in the difference of two, and how many inputs would decide."""

import math
from collections.abc import Hashable, Mapping, Sequence
from statistics import NormalDist
from typing import TypeVar

# As many inputs as are said to be needed decide in 8 of 10 repeats at least. A little more is aimed at: the formula is
# of the normal curve, and counts are whole.
_POWER = 0.84
_Z95 = 1.959963984540054
Key = TypeVar("Key", bound=Hashable)
_STEPS = 60  # of bisection: an interval to the last bit that a float holds


def wilson(hits: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """The Wilson interval of ``hits`` out of ``n``: honest near 0 and 1, where the normal one is not.

    >>> tuple(round(v, 4) for v in wilson(90, 100))
    (0.8256, 0.9448)
    """
    if n == 0:
        return (0.0, 1.0)
    z = z_of(level)
    share, z2 = hits / n, z**2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = z * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return (0.0 if hits == 0 else middle - half, 1.0 if hits == n else middle + half)


def newcombe(hits: int, n: int, others: int, of: int, level: float = 0.95) -> tuple[float, float]:
    """The interval of ``hits / n - others / of``, two shares counted apart: Newcombe's (1998), of two Wilson ones.

    Shares of the same inputs mostly go together; then the difference is surer than this says.

    >>> tuple(round(v, 4) for v in newcombe(29, 50, 20, 50))
    (-0.0151, 0.3569)
    """
    if n == 0 or of == 0:
        return (-1.0, 1.0)
    share, other = hits / n, others / of
    (low, high), (least, most) = wilson(hits, n, level), wilson(others, of, level)
    below, above = math.hypot(share - low, most - other), math.hypot(high - share, other - least)
    return (share - other - below, share - other + above)


def tango(only: int, other: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """The interval of ``(only - other) / n`` over the same ``n`` inputs, of which ``only`` are right for the first and
    ``other`` only for the second: Tango's score interval (1998), which agrees with McNemar's test.

    >>> tuple(round(v, 4) for v in tango(12, 2, 50))
    (0.0611, 0.3447)
    """
    if n == 0:
        return (-1.0, 1.0)
    z, seen = z_of(level), (only - other) / n

    def end(outer: float) -> float:
        inner = seen
        for _ in range(_STEPS):
            middle = (inner + outer) / 2
            far = abs(seen - middle) > z * math.sqrt(_spread(only / n, other / n, middle) / n)
            inner, outer = (inner, middle) if far else (middle, outer)
        return inner

    return (end(-1.0), end(1.0))


def mcnemar(only: int, other: int) -> float:
    """The exact two-sided p of as uneven a split of the inputs on which two models differ, were both as good.

    >>> round(mcnemar(12, 2), 4)
    0.0129
    """
    n, few = only + other, min(only, other)
    if only == other:
        return 1.0
    log_half = n * math.log(0.5)
    logs = (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + log_half for k in range(few + 1))
    return min(1.0, 2 * math.fsum(map(math.exp, logs)))


def paired_shares(differences: Sequence[float]) -> float:
    """The two-sided p of as large a mean of these differences, one an input, were either sign of each as likely.

    By the normal curve: for differences of -1, 0 and 1 it is McNemar's, for which there is an exact one above.

    >>> round(paired_shares([1.0] * 40 + [-1.0] * 20 + [0.0] * 40), 4)
    0.0098
    """
    spread = math.sqrt(math.fsum(d * d for d in differences))
    return 1.0 if spread == 0 else math.erfc(abs(math.fsum(differences)) / spread / math.sqrt(2))


def holm(p: Mapping[Key, float]) -> dict[Key, float]:
    """The p values made up for how many there are, by Holm's (1979) steps down: below 0.05, all of them hold together.

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'c': 0.06, 'b': 0.06}
    """
    told, least = {}, 0.0
    for place, key in enumerate(sorted(p, key=lambda name: p[name])):
        least = max(least, min(1.0, (len(p) - place) * p[key]))
        told[key] = least
    return told


def share_needed(share: float, bound: float, level: float = 0.95) -> int | None:
    """How many inputs decide, in 8 of 10 repeats, on which side of the bound a share lies that is what it looks like.

    None where it lies on the bound: then none do.

    >>> share_needed(0.45, 0.4)
    867
    """
    return _needed(share - bound, bound * (1 - bound), share * (1 - share), level)


def difference_needed(only: float, other: float, bound: float, level: float = 0.95) -> int | None:
    """The same for the difference of two models over the same inputs; ``only`` and ``other`` are shares of them.

    >>> difference_needed(0.05, 0.02, 0.0)
    709
    """
    difference = only - other
    return _needed(difference - bound, _spread(only, other, bound), only + other - difference**2, level)


def z_of(level: float) -> float:
    """How many standard deviations a two-sided interval of that level reaches."""
    return _Z95 if level == 0.95 else NormalDist().inv_cdf((1 + level) / 2)


def _needed(gap: float, at_bound: float, at_share: float, level: float) -> int | None:
    """For a score test: its spread where the bound is true, and where what was seen is."""
    if abs(gap) < 1e-9:
        return None
    power = NormalDist().inv_cdf(_POWER)
    n = ((z_of(level) * math.sqrt(max(at_bound, 0)) + power * math.sqrt(max(at_share, 0))) / gap) ** 2
    # Counts are whole: as Fleiss corrects for continuity, a little more than the normal curve says.
    return math.ceil(n / 4 * (1 + math.sqrt(1 + 2 / (n * abs(gap)))) ** 2) if n > 0 else 1


def _spread(only: float, other: float, difference: float) -> float:
    """The variance of one input's difference where ``difference`` is the true one and the rest is most likely."""
    linear = (2 - only + other) * difference - only - other
    root = math.sqrt(max(linear**2 + 8 * other * difference * (1 - difference), 0.0))
    return max(2 * (root - linear) / 4 + difference * (1 - difference), 0.0)
