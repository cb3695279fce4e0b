"""Levels of quality filters: fixed once, on the seeds, so that they keep a share of them."""

import math

from torch import Tensor

from assay.core.errors import UsageError
from assay.subjects.bench import Bench

LEVELS = "levels"  # where a bench keeps them, by the name of what is measured
FIXED = "levels are fixed"  # there once the seeds are chosen


def level(bench: Bench, name: str, values: Tensor, keep: float, *, low: bool = False) -> float:
    """The level of ``name`` that keeps the share ``keep`` of the values it is first asked for, largest ones first.

    With ``low`` the smallest first. It is one of the values, so that those equal to it are kept too. Later values are
    measured by the same level, whatever share they ask for. No values fix nothing, and give NaN.
    """
    check_share(name, keep)
    levels: dict[str, float] = bench.kept.setdefault(LEVELS, {})
    if name not in levels and FIXED in bench.kept:
        raise UsageError(
            f"{name} knows its level from the seeds, and no step of theirs asked for it: let the seeds end with it "
            f"(--set seeds=…,{name}), or give the level itself"
        )
    if name not in levels:
        order = values[values.isfinite()].sort(descending=not low).values
        if not len(order):
            return math.nan
        levels[name] = float(order[max(1, round(keep * len(order))) - 1])
    return levels[name]


def check_share(name: str, keep: float) -> None:
    """Refuse a share of seeds that is none."""
    if not 0 < keep <= 1:
        raise UsageError(f"{name}: keep is the share of the seeds to keep, above 0 and at most 1; got {keep}")
