"""Text as people write it: ``8/255``, ``10m``, ``2GB``, and back."""

import math
import re

from assay.core.errors import UsageError

_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def number(text: str | float, what: str = "number") -> float:
    """A finite number from ``0.1``, ``8/255`` or a float.

    >>> number("8/255") == 8 / 255
    True
    """
    try:
        if isinstance(text, str) and "/" in text:
            above, below = text.split("/")
            value = float(above) / float(below)
        else:
            value = float(text)
    except (ValueError, ZeroDivisionError, OverflowError):
        raise UsageError(f"{what} must be a number such as 0.1 or 8/255, got {text!r}") from None
    if not math.isfinite(value):
        raise UsageError(f"{what} must be finite, got {text!r}")
    return value


def budget(text: str | float) -> float:
    """A perturbation size: a number that is not negative."""
    value = number(text, "eps")
    if value < 0:
        raise UsageError(f"eps must not be negative, got {text!r}")
    return value


def count(text: str | int, of: int, what: str) -> int:
    """How many cases: a number, or a share of ``of`` such as ``10%``, of which one is the least.

    >>> count("10%", 55, "-k"), count(7, 55, "-k")
    (6, 7)
    """
    share = re.fullmatch(r"(\d+(?:\.\d+)?)%", str(text))
    if share is not None and 0 < float(share[1]) <= 100:
        return max(1, round(float(share[1]) / 100 * of))
    if not re.fullmatch(r"\d+", str(text)) or not int(text):
        raise UsageError(f"{what} is a number of cases from 1 up, or a share such as 10%, got {text!r}")
    return int(text)


def seconds(text: str | float) -> float:
    """A duration from ``90``, ``30s``, ``10m`` or ``1h30m``.

    >>> seconds("1h30m")
    5400.0
    """
    if not isinstance(text, str) or re.fullmatch(r"\d+(\.\d+)?", text):
        value = float(text)
    else:
        parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text)
        if not parts or "".join(a + b for a, b in parts) != text:
            raise UsageError(f"a time is written as 30s, 10m or 1h30m, got {text!r}")
        value = sum(float(amount) * _SECONDS[unit] for amount, unit in parts)
    if value <= 0 or not math.isfinite(value):
        raise UsageError(f"a time must be positive, got {text!r}")
    return value


def clock(value: float) -> str:
    """Seconds as people read them.

    >>> clock(4000)
    '1h06m'
    """
    if value < 59.95:
        return f"{value:.1f}s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"
