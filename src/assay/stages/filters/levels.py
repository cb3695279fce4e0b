"""Levels of quality filters: fixed once, on the seeds, so that they keep a share of them."""

import math
from collections.abc import Mapping

from torch import Tensor

from assay.core.errors import UsageError
from assay.subjects.bench import Bench

LEVELS = "levels"  # where a bench keeps them, by the name of what is measured
FIXED = "levels are fixed"  # there once the seeds are chosen


KEEP = 0.6  # of the seeds, where nobody says otherwise


def level(
    bench: Bench,
    name: str,
    values: Tensor,
    *,
    keep: float | None = None,
    given: float | None = None,
    low: bool = False,
) -> float:
    """The level of ``name`` that was ``given``, else the one that keeps the share ``keep`` of the seeds.

    That is fixed on the first values it is asked for, the seeds' (largest first, with ``low`` smallest first), and then
    holds for the cases too. It is one of the values, so that those equal to it are kept. No values fix nothing, and
    give NaN.
    """
    if keep is not None and not 0 < keep <= 1:
        raise UsageError(f"{name}: keep is the share of the seeds to keep, above 0 and at most 1; got {keep}")
    levels: dict[str, float] = bench.kept.setdefault(LEVELS, {})
    if given is not None:
        if FIXED not in bench.kept:
            levels.setdefault(name, given)
        return given
    if FIXED in bench.kept:
        _check_fixed(name, keep, levels)
    if name not in levels:
        share = KEEP if keep is None else keep
        order = values[values.isfinite()].sort(descending=not low).values
        if not len(order):
            return math.nan
        levels[name] = float(order[max(1, round(share * len(order))) - 1])
    return levels[name]


def _check_fixed(name: str, keep: float | None, levels: Mapping[str, float]) -> None:
    """Once the seeds are chosen, no share of them can be asked for any more."""
    if keep is not None:
        raise UsageError(
            f"{name}: keep is a share of the seeds and belongs to them (--set seeds.….keep={keep:g}); for cases leave "
            "it out, and the level of the seeds holds, or give the level itself"
        )
    if name not in levels:
        raise UsageError(
            f"{name} knows its level from the seeds, and no step of theirs asked for it: let the seeds end with the "
            "same filter, or give the level itself"
        )
