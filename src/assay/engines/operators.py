"""What each operator of a mutator brings: how many cases it made, and how many of them failed.

A mutator that chooses among operators says which it took in a column ``operator`` (N,), places in the tuple
``OPERATORS`` of its module, -1 for none; lanes count them beside the rules, so that a commit tells them exactly.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.registry import Bound

COLUMN = "operator"


def operators_of(mutate: Bound) -> tuple[str, ...]:
    """The names of a mutator's operators; none of most."""
    named: tuple[str, ...] = getattr(mutate.function, "__globals__", {}).get("OPERATORS", ())
    return tuple(map(str, named))


def brought(made: Cases, count: int, tried: Tensor, failing: Tensor) -> Tensor:
    """Which operator made each of the cases ``tried``, then of those that fail: (N, 2 ``count``)."""
    if not count or COLUMN not in made.info:
        return tried.new_zeros(len(tried), 2 * count)
    # One comparison for all: small kernels, one for each operator, add up on a GPU.
    took = made.info[COLUMN][:, None] == torch.arange(count, device=tried.device)
    return torch.cat([took & tried[:, None], took & failing[:, None]], 1)


def told(names: Sequence[str], counts: Sequence[int]) -> dict[str, dict[str, int]]:
    """Those counts by name, for the journal and for people.

    >>> told(["blur", "noise"], [10, 20, 1, 0])
    {'blur': {'cases': 10, 'failures': 1}, 'noise': {'cases': 20, 'failures': 0}}
    """
    pairs = zip(names, counts[: len(names)], counts[len(names) :], strict=True)
    return {name: {"cases": cases, "failures": failures} for name, cases, failures in pairs}


def added(sums: dict[str, dict[str, int]], more: Mapping[str, Mapping[str, Any]]) -> None:
    """Add the counts of a commit to those before it."""
    for name, counts in more.items():
        mine = sums.setdefault(name, {"cases": 0, "failures": 0})
        for what in mine:
            mine[what] += int(counts[what])
