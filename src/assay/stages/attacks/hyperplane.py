"""The smallest move onto a hyperplane inside the box of allowed values, exact, for all rows at once."""

import torch
from torch import Tensor

from assay.core.norms import Norm

TURNS = (
    4  # of Newton before a GPU is asked whether it is there: asking costs as much, and turns too many change nothing
)


def onto(at: Tensor, slope: Tensor, gap: Tensor, bounds: tuple[float, float], norm: Norm) -> Tensor:
    """The moves (N, D) of least ``norm`` that change ``slope · at`` by ``gap`` (N,) and leave no entry out of bounds.

    A row whose hyperplane does not meet the box gets the move to the corner nearest to that plane; a row without slope
    stays. Norms: linf, l2 and l1.
    """
    # Slopes of confident nets are so small that their squares underflow: each row is scaled by its largest entry.
    most = slope.abs().amax(1, keepdim=True)
    scale = torch.where(most > 0, most, 1.0)
    need = torch.where(most > 0, gap.abs()[:, None] / scale, 0.0).nan_to_num_(0.0)
    toward = slope / scale * gap.sign()[:, None]
    way = toward.sign()
    # Way +1 has hi - at to go, -1 at - lo, and 0 nothing; written without `where`, which is 20 times as slow.
    room = torch.maximum((bounds[1] - at).mul_(way), (bounds[0] - at).mul_(way)).clamp_min_(0)
    weight = toward.abs_()
    moved = _greedy(weight, room, need) if norm == "l1" else _together(weight, room, need, norm)
    return moved.mul_(way)


def _together(weight: Tensor, room: Tensor, need: Tensor, norm: Norm) -> Tensor:
    """linf and l2: entry i goes by ``min(t · pace_i, room_i)``; find the t for which the weighted sum is ``need``.

    The sum is concave in t and made of straight pieces, so Newton from 0 never passes the answer and stops exactly at
    it when no further entry meets its bound: a handful of passes, where sorting the entries would cost more.
    """
    tiny, most = torch.finfo(weight.dtype).tiny, torch.finfo(weight.dtype).max
    pace = weight if norm == "l2" else torch.ones_like(weight)
    ends = room / pace.clamp_min(tiny)  # the t at which an entry meets its bound
    speed, reach = weight * pace, weight * room
    t = torch.zeros_like(need)
    while True:
        before = t
        for _ in range(_turns(t)):
            free = (ends - t).sign_().clamp_min_(0)
            pull = torch.linalg.vecdot(free, speed)[:, None]
            left = need - torch.linalg.vecdot(free.neg_().add_(1), reach)[:, None]
            # Nothing free and still something left: all to the bounds. Rounding must not turn t back.
            t = torch.where(pull > 0, left / pull, torch.where(left > 0, most, t)).clamp_max_(most).maximum(t)
        if not bool((t > before).any()):
            return torch.minimum(t * pace, room)


def _turns(t: Tensor) -> int:
    return TURNS if t.is_cuda else 1


def _greedy(weight: Tensor, room: Tensor, need: Tensor) -> Tensor:
    """l1: entries with the largest weights go to their bounds, one after another, the last only as far as needed."""
    order = weight.argsort(dim=1, descending=True, stable=True)
    gains = (weight * room).gather(1, order)
    before = gains.cumsum(1) - gains
    share = ((need - before) / gains).clamp_(0, 1).nan_to_num_(0.0)
    return torch.zeros_like(room).scatter_(1, order, share * room.gather(1, order))
