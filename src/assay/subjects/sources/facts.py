"""What a checkpoint says of itself, believed only after a look: files come from anywhere."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

from assay.core.cases import InputSpec
from assay.core.errors import UsageError
from assay.core.files import whole_text

LARGEST = 1e30  # a number beyond is no mean, bound or size
MAX_INPUT = 50_000_000  # numbers in one input; more would be allocated before anything else is checked


def check(facts: Mapping[str, Any], path: Path) -> None:
    """Refuse facts that no training of ours writes."""
    for name in ("mean", "std"):
        if not _list(facts.get(name, []), int, float):
            raise _damaged(path, name, facts[name])
    for name, kind in (("params", dict), ("model", str), ("training", dict)):
        if not isinstance(facts.get(name, kind()), kind):
            raise _damaged(path, name, facts[name])
    if "shape" in facts:
        input_spec(facts, path)


def input_spec(facts: Mapping[str, Any], path: Path) -> InputSpec:
    """The input of the net: shape, bounds and classes, each of them possible."""
    shape, bounds, classes = (facts.get(name) for name in ("shape", "bounds", "classes"))
    if not _list(shape, int) or any(s <= 0 for s in shape) or math.prod(shape) > MAX_INPUT:
        raise _damaged(path, "shape", shape)
    if not _list(bounds, int, float) or len(bounds) != 2 or not bounds[0] < bounds[1]:
        raise _damaged(path, "bounds", bounds)
    if not _list(classes, str) or len(classes) < 2:
        raise _damaged(path, "classes", classes)
    return InputSpec(tuple(shape), (float(bounds[0]), float(bounds[1])), tuple(map(whole_text, classes)))


def _list(value: Any, *kinds: type) -> TypeGuard[list[Any]]:
    return isinstance(value, list) and all(
        isinstance(v, kinds) and not isinstance(v, bool) and (not isinstance(v, (int, float)) or abs(v) < LARGEST)
        for v in value
    )


def _damaged(path: Path, name: str, value: object) -> UsageError:
    shown = repr(value)
    return UsageError(
        f"the facts in {path} are damaged: {name} is {shown if len(shown) < 60 else shown[:57] + '...'}; "
        "train or save the net anew"
    )
