"""Confidence in a share, and in the difference of two."""

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


def newcombe(hits: int, n: int, others: int, of: int) -> tuple[float, float]:
    """The 95 % interval of ``hits / n - others / of``, two shares counted apart: Newcombe's (1998), of two Wilson ones.

    Shares of the same inputs mostly go together; then the difference is surer than this says.

    >>> tuple(round(v, 4) for v in newcombe(29, 50, 20, 50))
    (-0.0151, 0.3569)
    """
    if n == 0 or of == 0:
        return (-1.0, 1.0)
    share, other = hits / n, others / of
    (low, high), (least, most) = wilson(hits, n), wilson(others, of)
    below, above = math.hypot(share - low, most - other), math.hypot(high - share, other - least)
    return (share - other - below, share - other + above)
