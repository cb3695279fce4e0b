"""Norms: size, projection, steepest direction and random points of the balls, one row at a time."""

from typing import Literal, get_args

import torch
from torch import Tensor

from assay.core.errors import UsageError
from assay.core.randomness import Rows

Norm = Literal["linf", "l2", "l1", "l0"]
NORMS: tuple[Norm, ...] = get_args(Norm)
Budget = float | Tensor


def check(norm: str, eps: float | None = None) -> Norm:
    """``norm`` if it is one of ours and ``eps`` a size it can mean."""
    if norm not in NORMS:
        raise UsageError(f"norm must be one of {', '.join(NORMS)}, got {norm!r}")
    if eps is not None and eps < 0:
        raise UsageError(f"eps must not be negative, got {eps}")
    if eps is not None and norm == "l0" and 0 < eps < 1:
        raise UsageError(f"eps of l0 counts changed entries and must be at least 1, got {eps}")
    return norm


def size(delta: Tensor, norm: Norm) -> Tensor:
    """The norm of each row, (N,). l0 counts the entries that are not zero.

    >>> size(torch.tensor([[3.0, -4.0]]), "l2")
    tensor([5.])
    """
    flat = delta.flatten(1)
    if norm == "linf":
        return flat.abs().amax(1) if flat.shape[1] else flat.new_zeros(len(flat))
    if norm == "l2":
        return _length(flat).squeeze(1)
    if norm == "l1":
        return flat.abs().sum(1)
    return (flat != 0).sum(1).to(delta.dtype)


def project(delta: Tensor, eps: Budget, norm: Norm) -> Tensor:
    """The nearest point of the ball of radius ``eps`` around zero, for each row."""
    radius = _column(eps, delta)
    flat = delta.flatten(1)
    if norm == "linf":
        inside = torch.minimum(torch.maximum(flat, -radius), radius)
    elif norm == "l2":
        length = _length(flat)
        inside = torch.where(length > radius, flat * (radius / length.clamp_min(1e-12)), flat)
    elif norm == "l1":
        inside = _project_l1(flat, radius)
    else:
        rank = flat.abs().argsort(dim=1, descending=True, stable=True).argsort(1)
        inside = torch.where(rank < radius.floor(), flat, 0.0)
    return inside.view_as(delta)


def _project_l1(flat: Tensor, radius: Tensor) -> Tensor:
    """Duchi et al. 2008: soft-threshold at the level that makes the sum of absolute values the radius."""
    magnitude = flat.abs()
    falling = magnitude.sort(1, descending=True).values
    excess = falling.cumsum(1) - radius
    count = torch.arange(1, flat.shape[1] + 1, device=flat.device, dtype=flat.dtype)
    support = (falling * count > excess).sum(1, keepdim=True).clamp_min(1)
    level = excess.gather(1, support - 1) / support
    shrunk = flat.sign() * (magnitude - level).clamp_min(0)
    return torch.where(magnitude.sum(1, keepdim=True) > radius, shrunk, flat)


def project_l1_box(delta: Tensor, eps: Budget, low: Tensor, high: Tensor) -> Tensor:
    """The nearest point of the l1 ball around zero that also lies between ``low`` ≤ 0 and ``high`` ≥ 0, for each row.

    Entries shrink by one common level and stop at their own end of the box (Croce and Hein 2021); the level is found
    exactly, by sorting the places where an entry starts to count and where it reaches its end.
    """
    flat, radius = delta.flatten(1), _column(eps, delta)
    magnitude = flat.abs()
    room = torch.where(flat > 0, high.flatten(1), -low.flatten(1))
    inside = torch.minimum(magnitude, room)
    # Going down from a level of infinity, the sum grows by one for each entry between its two places.
    places, order = torch.cat((magnitude, magnitude - room), 1).sort(1, descending=True)
    slope = torch.where(order < flat.shape[1], 1.0, -1.0).to(flat.dtype).cumsum(1)
    rises = slope[:, :-1] * (places[:, :-1] - places[:, 1:])
    sums = torch.cat((flat.new_zeros(len(flat), 1), rises.cumsum(1)), 1)
    last = (sums <= radius).sum(1, keepdim=True) - 1
    rest = (radius - sums.gather(1, last)) / slope.gather(1, last).clamp_min(1)
    level = (places.gather(1, last) - rest).clamp_min(0)
    shrunk = torch.minimum((magnitude - level).clamp_min(0), room)
    fits = inside.sum(1, keepdim=True) <= radius
    return (flat.sign() * torch.where(fits, inside, shrunk)).view_as(delta)


def sparse(grad: Tensor, share: float) -> Tensor:
    """The signs of the largest ``share`` of each row's entries (at least one), over their number: unit l1 norm.

    The l1 step of Tramèr and Boneh 2019: the single largest entry alone would need a step for every entry it changes.
    """
    flat = grad.flatten(1)
    count = max(1, round(share * flat.shape[1]))
    largest = flat.abs().topk(count, 1).indices
    return torch.zeros_like(flat).scatter_(1, largest, flat.gather(1, largest).sign() / count).view_as(grad)


def steepest(grad: Tensor, norm: Norm) -> Tensor:
    """The direction of unit norm along which a linear function with this gradient grows most.

    Rows without gradient get the zero direction. For l1 and l0 it is the single largest entry.
    """
    if norm == "linf":
        return grad.sign()
    flat = grad.flatten(1)
    if norm == "l2":
        flat = scaled(flat)
        return (flat / _length(flat).clamp_min(1e-12)).view_as(grad)
    best = flat.abs().argmax(1, keepdim=True)
    return torch.zeros_like(flat).scatter_(1, best, flat.gather(1, best).sign()).view_as(grad)


def random_point(shape: tuple[int, ...], eps: Budget, norm: Norm, rng: Rows) -> Tensor:
    """A uniform random point of the ball for each row, (N, *shape).

    l0 changes ``eps`` random entries by a uniform amount in [-1, 1].
    """
    n, width = len(rng), int(torch.Size(shape).numel())
    if norm == "linf":
        flat = rng.at(0).uniform((width,), -1.0, 1.0)
    elif norm == "l2":
        flat = rng.at(0).normal((width,))
        flat = flat / _length(flat).clamp_min(1e-12)
        flat = flat * rng.at(1).uniform((1,)) ** (1.0 / width)
    elif norm == "l1":  # width + 1 exponentials over their sum: uniform in the simplex with its inside
        spread = -torch.log1p(-rng.at(0).uniform((width + 1,)))
        sign = rng.at(1).uniform((width,), -1.0, 1.0).sign()
        flat = sign * spread[:, :width] / spread.sum(1, keepdim=True)
    else:
        flat = rng.at(0).uniform((width,), -1.0, 1.0)
        rank = rng.at(1).uniform((width,)).argsort(1).argsort(1)
        return torch.where(rank < _column(eps, flat).floor(), flat, 0.0).view(n, *shape)
    return (flat * _column(eps, flat)).view(n, *shape)


def random_edge(shape: tuple[int, ...], eps: Budget, norm: Norm, rng: Rows) -> Tensor:
    """A random point of the edge of the ball for each row, (N, *shape), for linf and l2."""
    inside = random_point(shape, 1.0, norm, rng)
    length = size(inside, norm).clamp_min(1e-12)
    return (inside.flatten(1) / length[:, None] * _column(eps, inside)).view_as(inside)


def box(x: Tensor, eps: float, norm: Norm, bounds: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Lowest and highest allowed values around ``x``: for linf the ball and the bounds are one box."""
    low, high = bounds
    if norm == "linf":
        return (x - eps).clamp_min_(low), (x + eps).clamp_max_(high)
    # Views of one number each, so that dropping rows costs nothing.
    return x.new_full((), low).expand_as(x), x.new_full((), high).expand_as(x)


def scaled(flat: Tensor) -> Tensor:
    """Each row over its largest entry. Gradients of confident nets are so small that their squares underflow."""
    most = flat.abs().amax(1, keepdim=True) if flat.shape[1] else flat.new_ones(len(flat), 1)
    return flat / torch.where(most > 0, most, 1.0)


def _length(flat: Tensor) -> Tensor:
    """The Euclidean length of each row, (N, 1)."""
    length: Tensor = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
    return length


def _column(eps: Budget, like: Tensor) -> Tensor:
    """The budget as a column of one or N rows; a number is filled in there, as copying it would stop a GPU."""
    if not isinstance(eps, Tensor):
        return like.new_full((1, 1), eps)
    return eps.to(like).reshape(-1, 1)


def first_order(slope: Tensor, delta: Tensor, eps: float, norm: Norm) -> Tensor:
    """How much a linear function with these slopes can still gain in the ball, from ``delta`` away of its middle, (N,).

    Never negative inside the ball, and 0 at its best point.
    """
    if norm == "linf":
        # Entry by entry, each at least 0 inside the ball: the difference of two sums would cancel near convergence.
        return (eps * slope.abs() - delta * slope).flatten(1).sum(1)
    gone = (delta * slope).flatten(1).sum(1)
    longest = safe_length(slope) if norm == "l2" else slope.abs().flatten(1).amax(1)
    return eps * longest - gone


def safe_length(vectors: Tensor) -> Tensor:
    """The l2 norm of each row, whose derivative is finite also at 0, (N,).

    The value is the plain norm, to compare with bounds as small as 1e-18; the derivative is that of the square root of
    (sum of squares + 1e-12), because the slope of the norm itself is 0/0 at 0 and a score of gradients is climbed by
    differentiating it. Vectors without a graph give a result without one.
    """
    flat = vectors.flatten(1)
    # Summed in float64: squares of entries below 1e-19 underflow in float32, and confident nets have such gradients.
    plain: Tensor = torch.linalg.vector_norm(flat.detach(), dim=1, dtype=torch.float64).to(flat.dtype)
    if not flat.requires_grad:
        return plain
    smooth = (flat.square().sum(1) + 1e-12).sqrt()
    return plain + (smooth - smooth.detach())
