"""Which two entries to change: the saliency of pairs (Papernot et al. 2016), in memory linear in the entries."""

import torch
from torch import Tensor


def best_pair(rise: Tensor, fall: Tensor, allowed: Tensor, most: int = 64) -> tuple[Tensor, Tensor]:
    """The pair with the largest (rise_p + rise_q) · (fall_p + fall_q), both sums above 0.

    ``rise`` (N, D) is the slope of the wanted class, ``fall`` that of all others with the sign turned. Returns the
    places (N, 2) and whether there is such a pair (N,).

    The score grows with both sums, so an entry that two others match in rise and in fall cannot be needed: a best pair
    lies among the entries that none matches and those that none of the rest matches. These few are compared with each
    other instead of all D² pairs. Exact where they are at most ``most`` (LeNet-5 on MNIST: 19 of 784 in the mean, 68
    at most); of more, those stay that could score highest beside the best rise and the best fall of the row.
    """
    nowhere = torch.finfo(rise.dtype).min / 4
    rise, fall = rise.masked_fill(~allowed, nowhere), fall.masked_fill(~allowed, nowhere)
    hope = (rise + rise.amax(1, keepdim=True)).clamp_min(0) * (fall + fall.amax(1, keepdim=True)).clamp_min(0)
    order = rise.argsort(dim=1, descending=True, stable=True)
    falls = fall.gather(1, order)
    first = _unmatched(falls)
    second = _unmatched(falls.masked_fill(first, nowhere))
    few = hope.gather(1, order).masked_fill(~(first | second), -1.0).topk(min(most, rise.shape[1]), 1)
    places = order.gather(1, few.indices)
    up, down = (slope.gather(1, places).masked_fill(few.values < 0, nowhere) for slope in (rise, fall))
    ups, downs = up[:, :, None] + up[:, None], down[:, :, None] + down[:, None]
    score = torch.where((ups > 0) & (downs > 0), ups * downs, -1.0)
    score.diagonal(dim1=1, dim2=2).fill_(-1.0)
    best = score.flatten(1).max(1)
    width = places.shape[1]
    pair = torch.stack([best.indices // width, best.indices % width], 1)
    return places.gather(1, pair), best.values > 0


def top_pair(rise: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """The best pair where what the others lose is what the wanted class gains: the two largest slopes, (N, 2), (N,)."""
    best = rise.masked_fill(~allowed, torch.finfo(rise.dtype).min / 4).topk(2, 1)
    return best.indices, best.values.sum(1) > 0


def _unmatched(falls: Tensor) -> Tensor:
    """Of entries in order of falling rise, those with a larger fall than every one before, (N, D)."""
    before = falls.cummax(1).values.roll(1, 1)
    before[:, 0] = -torch.inf
    return falls > before
