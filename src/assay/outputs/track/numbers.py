"""Numbers of engines under names that trackers take."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

MOST_NAMES = 200  # numbers of one event: a model of a thousand classes has as many accuracies
LONGEST = 200  # characters of a name; MLflow takes 250
_PART = re.compile(r"[^\w. -]")


def flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with the path of names that leads to it.

    >>> dict(flat({"a": {"b": 1}, "c": 2}))
    {'a/b': 1, 'c': 2}
    """
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value


def numbers_in(tree: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The finite numbers among the values; true is 1. Others are left out: no tracker draws them."""
    found: dict[str, float] = {}
    for name, value in flat(tree, prefix):
        if isinstance(value, bool | int | float) and len(found) < MOST_NAMES:
            number = _number(value)
            if math.isfinite(number):
                found[name] = number
    return found


def texts_in(tree: Mapping[str, Any]) -> dict[str, str]:
    """The texts among the values: the phase, the attack that works."""
    return {name: value for name, value in flat(tree) if isinstance(value, str) and value}


def clean_name(name: str) -> str:
    """A name that TensorBoard and MLflow take as it is: a path of plain parts that leads nowhere else.

    >>> clean_name("attacks/pgd(steps=40)/../<b>")
    'attacks/pgd_steps_40_/_/_b_'
    """
    parts = (_PART.sub("_", part).strip() for part in name.split("/"))
    cleaned = "/".join(("_" if set(part) <= {"."} else part) for part in parts if part)
    return cleaned[:LONGEST].rstrip("/ ") or "_"


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf
