"""Confidence in a share."""

import math

_Z95 = 1.959963984540054


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The 95 % Wilson interval of ``hits`` out of ``n``: honest near 0 and 1, where the normal one is not.

    >>> tuple(round(v, 4) for v in wilson(90, 100))
    (0.8256, 0.9448)
    """
    if n == 0:
        return (0.0, 1.0)
    share, z2 = hits / n, _Z95**2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return (0.0 if hits == 0 else middle - half, 1.0 if hits == n else middle + half)
