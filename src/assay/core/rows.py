"""Rows that a mask picks, without asking a GPU how many they are: who asks waits for all that it has still to do.

On a CPU the picked rows alone are worked. On a GPU all rows are, and what the mask leaves out is written as it was:
these are memories of a few cases a row, and reading them costs less than waiting.
"""

import torch
from torch import Tensor

from assay.core.shapes import column


def some_rows(mask: Tensor) -> Tensor | slice:
    """The rows to work on: those of the mask on a CPU, all on a GPU."""
    return slice(None) if _all_at_once(mask) else mask.nonzero().squeeze(1)


def put_where(memory: Tensor, mask: Tensor, place: Tensor, new: Tensor) -> None:
    """Write ``new`` (N, …) to ``memory`` (N, places, …) at the place of each row of the mask, in place."""
    if _all_at_once(mask):
        rows = torch.arange(len(mask), device=mask.device)
        memory[rows, place] = torch.where(column(mask, new), new, memory[rows, place])
    else:
        rows = mask.nonzero().squeeze(1)
        memory[rows, place[rows]] = new[rows]


def taken_where(memory: Tensor, mask: Tensor, place: Tensor, others: Tensor) -> Tensor:
    """What ``memory`` (N, places, …) holds at the place of each row of the mask, elsewhere the row of ``others``."""
    if _all_at_once(mask):
        rows = torch.arange(len(mask), device=mask.device)
        return torch.where(column(mask, others), memory[rows, place], others)
    rows, found = mask.nonzero().squeeze(1), others.clone()
    found[rows] = memory[rows, place[rows]]
    return found


def _all_at_once(mask: Tensor) -> bool:
    return mask.is_cuda
