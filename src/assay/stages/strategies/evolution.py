"""ADAPT's population of vectors: which go on, and what comes of them."""

import torch
from torch import Tensor


def best_cover(covered: Tensor, n: int) -> Tensor:
    """The n records to breed from, (n,): greedily those that add most to what is covered, (R, W) bool.

    When nothing more can be added, the rest are those that cover most, no record twice; ties go to the oldest.
    """
    left, order = covered.clone(), []
    free = torch.ones(len(covered), dtype=torch.bool, device=covered.device)
    for _ in range(min(n, len(covered))):
        gain = left.sum(1)
        best = gain.argmax()
        if not bool(gain[best]):
            break
        order.append(best)
        left &= ~covered[best]
        free[best] = False
    # Code: the same record may be taken twice, once as part of the cover and once as one of the largest.
    largest = torch.where(free, covered.sum(1), -1).argsort(descending=True, stable=True)
    return torch.cat([torch.stack(order) if order else largest[:0], largest])[: min(n, len(covered))]


def bred(parents: Tensor, count: int, bound: float, noise: float, draw: torch.Generator) -> Tensor:
    """``count`` children of parents (P, F): pairs of two random orders, every entry from either, noise, clipped."""
    orders = [torch.randperm(len(parents), generator=draw).to(parents.device) for _ in range(2)]
    each = -(-count // len(parents))
    left, right = (parents[order].repeat_interleave(each, 0) for order in orders)
    coin = torch.rand(left.shape, generator=draw).to(parents.device) < 0.5
    shift = noise * torch.randn(left.shape, generator=draw).to(parents.device)
    return (torch.where(coin, left, right) + shift).clamp_(-bound, bound)[:count]
