"""Work group by group: rows that share a predicted class."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

BLOCK = 1 << 22  # numbers in the largest table that is held at a time: 32 MB in float64


def rows_of(groups: Tensor, count: int) -> tuple[Tensor, ...]:
    """The rows of each of ``count`` groups, in their order."""
    sizes: list[int] = groups.bincount(minlength=count).tolist()
    return torch.split(groups.argsort(stable=True), sizes)


def by_group(work: Callable[[int, Tensor], Tensor], traces: Tensor, groups: Tensor, count: int) -> Tensor:
    """What ``work`` gives for the traces of each group that has some, back in the order of the rows, float64 (N,)."""
    rows = rows_of(groups, count)
    parts = [work(group, traces[own]) for group, own in enumerate(rows) if len(own)]
    if not parts:
        return traces.new_zeros(0, dtype=torch.float64)
    return torch.cat(parts)[torch.cat(rows).argsort()]


def nowhere(traces: Tensor) -> Tensor:
    """The surprise at traces of a group that training data never showed: infinite."""
    return traces.new_full((len(traces),), torch.inf, dtype=torch.float64)


def blocks(n: int, width: int, block: int) -> Iterator[slice]:
    """Runs of rows whose tables of ``width`` columns hold at most ``block`` numbers, but never less than one row."""
    step = max(1, block // max(1, width))
    return (slice(start, min(start + step, n)) for start in range(0, n, step))
