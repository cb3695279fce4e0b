"""How alike features are."""

import torch
from torch import Tensor


def cosine(one: Tensor, other: Tensor) -> Tensor:
    """The cosine of the angle between vectors along the last axis, -1 to 1; leading axes may be broadcast.

    Of two vectors of zeros it is 1, of one such and another 0, of what is not finite -1: they are alike only where they
    are the same.

    >>> cosine(torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.tensor([[4.0, 3.0], [0.0, 0.0]])).tolist()
    [0.9599999785423279, 1.0]
    """
    # Divided by the largest number first: squares of features of a deep net may be too large, or vanish.
    one, other = (v / v.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(v.dtype).tiny) for v in (one, other))
    lengths = one.norm(dim=-1), other.norm(dim=-1)
    alike = (one * other).sum(-1) / (lengths[0] * lengths[1])
    none = (lengths[0] == 0).int() + (lengths[1] == 0).int()
    alike = torch.where(none == 0, alike, (none == 2).to(alike.dtype))
    return alike.clamp(-1, 1).nan_to_num(nan=-1.0)
