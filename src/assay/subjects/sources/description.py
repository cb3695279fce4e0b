"""What a server says of itself, believed only after a look."""

import math
from collections.abc import Mapping
from typing import Any

from assay.core.cases import InputSpec
from assay.core.errors import UsageError
from assay.subjects.bench import Data
from assay.subjects.sources.patience import printable

_LARGEST = 1 << 28  # numbers in one input


def spec_told(told: Mapping[str, Any], data: Data | None, url: str) -> InputSpec:
    """Shape, bounds and classes as the server tells them, else as the data are."""
    if not {"shape", "bounds", "classes"} <= told.keys():
        if data is None:
            raise UsageError(f"{url} does not say what inputs it takes; give the data too (data=… or --data)")
        return data.spec
    try:
        shape, (low, high), classes = told["shape"], told["bounds"], told["classes"]
        if not all(isinstance(each, list) for each in (shape, told["bounds"], classes)):
            raise TypeError("lists are wanted")
        if not all(_whole(n) for n in shape) or not all(isinstance(c, str) or _whole(c) for c in classes):
            raise TypeError("axes are whole numbers, classes texts")
        if not all(_whole(bound) or isinstance(bound, float) for bound in (low, high)):
            raise TypeError("bounds are numbers")
        low, high = float(low), float(high)
        shape, classes = tuple(shape), tuple(str(c).encode().decode() for c in classes)  # no half characters
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"{url} says of itself what cannot be read: shape, bounds or classes") from error
    if not shape or min(shape) < 1 or math.prod(shape) > _LARGEST or not -math.inf < low < high < math.inf:
        told_so = printable(f"shape {shape}, bounds {low}..{high}")
        raise UsageError(f"{url} says of itself what cannot be: {told_so}")
    if len(classes) < 2 or len(set(classes)) < len(classes):
        raise UsageError(f"{url} says of itself what cannot be: {len(classes)} classes, {len(set(classes))} different")
    return InputSpec(shape, (low, high), classes)


def _whole(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool)
