"""Boundary attack: a random walk along the border, by the target's labels alone."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay.core import norms
from assay.core.errors import UsageError
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.core.shapes import column
from assay.stages.attacks.label_start import Labels, bisect, find_start
from assay.stages.attacks.minimal import check_norm
from assay.subjects.target import Target

BISECTIONS = 10
EVERY = 20  # steps between two looks at the sideways step alone
INWARDS_RATE, SIDEWAYS_RATE = 0.1, 0.25  # how fast step sizes adapt; tried on MNIST at 2000 and 5000 queries


@register("attack", paper="Brendel et al. 2018", needs=("label",))
def boundary(
    target: Target,
    x: Tensor,
    y: Tensor,
    *,
    rng: Rows,
    eps: float | None = None,
    norm: str = "l2",
    queries: int = 5000,
    sideways: float = 0.2,
    inwards: float = 0.05,
    converged: float = 1e-6,
    starts: int = 200,
    targeted: bool = False,
) -> Tensor:
    """Nearest adversarial point by labels alone: random steps sideways and inwards that stay adversarial; l2.

    A row is asked at most ``queries`` times, the search for its start included: up to ``starts`` noise images, the
    first of the wanted kind, brought to the border by bisection. A step goes ``sideways`` on the sphere around the
    clean input, then ``inwards``, both as shares of the distance. Both adapt for each row, so that about half of the
    sideways steps and a quarter of the whole steps succeed; a row whose inward share falls below ``converged`` ends.
    Rows without a start come back as they were; with ``eps``, so do rows that do not come within it, and a row that
    does ends there.

    Formula: x' = x + (1 − inwards)·r·(v + sideways·u)/‖v + sideways·u‖, v the direction from x to the current
    point, r their distance, u random and at a right angle to v; kept where still adversarial.
    """
    check_norm("boundary", norm, eps, ("l2",))
    if min(queries, starts) < 1 or not 0 < sideways < 1 or not 0 < inwards < 1 or converged < 0:
        told = f"queries {queries}, starts {starts}, sideways {sideways}, inwards {inwards}, converged {converged}"
        raise UsageError(f"boundary needs queries and starts above 0, sideways and inwards in (0, 1); got {told}")
    labels = Labels(target, targeted, tuple(x.shape[1:]))
    with target.ready(), torch.no_grad():
        rows, far, used = find_start(labels, x, y, rng.at(0), min(starts, queries - 1))
        like = far.new_ones(len(rows))
        walkers = _Walkers(rows, x[rows], y[rows], far, used, like * sideways, like * inwards, rng[rows].at(1))
        return _walk(labels, x, walkers, queries, eps, converged)


@dataclass(frozen=True, slots=True)
class _Walkers:
    """The rows on their way: row numbers, clean inputs, labels, where they are, queries spent, step sizes."""

    rows: Tensor
    x: Tensor
    y: Tensor
    at: Tensor
    used: Tensor
    sideways: Tensor
    inwards: Tensor
    rng: Rows

    def only(self, on: Tensor) -> "_Walkers":
        parts = (self.rows, self.x, self.y, self.at, self.used, self.sideways, self.inwards)
        rows, x, y, at, used, sideways, inwards = (t[on] for t in parts)
        return _Walkers(rows, x, y, at, used, sideways, inwards, self.rng[on])


def _walk(labels: Labels, x: Tensor, walkers: _Walkers, queries: int, eps: float | None, converged: float) -> Tensor:
    out = x.clone()
    walkers = _to_border(labels, walkers, queries)
    step = 0
    while len(walkers.rows):
        looks = step % EVERY == 0
        distance = norms.size(walkers.at - walkers.x, "l2")
        near = distance <= (torch.inf if eps is None else eps)
        done = (walkers.used + 1 + looks > queries) | (walkers.inwards < converged)
        done = done if eps is None else done | near
        if done.any():
            ready = done & near
            out[walkers.rows[ready]] = walkers.at[ready]
            on = (~done).nonzero().squeeze(1)
            walkers, distance = walkers.only(on), distance[on]
            if not len(on):
                break
        walkers = _step(labels, walkers, distance, step, looks)
        step += 1
    return out


def _to_border(labels: Labels, walkers: _Walkers, queries: int) -> _Walkers:
    """Rows that can pay for it go to the border on the straight line."""
    on = (walkers.used + BISECTIONS <= queries).nonzero().squeeze(1)
    at, used = walkers.at.clone(), walkers.used.clone()
    if len(on):
        at[on] = bisect(labels, walkers.x[on], at[on], walkers.y[on], "l2", BISECTIONS)
        used[on] += BISECTIONS
    return replace(walkers, at=at, used=used)


def _step(labels: Labels, walkers: _Walkers, distance: Tensor, step: int, looks: bool) -> _Walkers:
    """One step of every row, kept where it is adversarial and nearer.

    Paper: step sizes change by a factor when the success of the last tries leaves a range. Here: every try moves them a
    little, because that needs no memory of tries and adapts from the first query on.
    """
    side, point = _propose(walkers, distance, step, labels.target.spec.bounds)
    hit = labels.reached(point, walkers.y)
    take = hit & (norms.size(point - walkers.x, "l2") < distance)
    at = torch.where(column(take, point), point, walkers.at)
    inwards = walkers.inwards * torch.exp(INWARDS_RATE * (hit.to(at.dtype) - 0.25))
    sideways = walkers.sideways
    if looks:
        change = torch.exp(SIDEWAYS_RATE * (labels.reached(side, walkers.y).to(at.dtype) - 0.5))
        sideways, inwards = (sideways * change).clamp_max(1.0), inwards * change
    used = walkers.used + 1 + looks
    return replace(walkers, at=at, used=used, sideways=sideways, inwards=inwards.clamp_max(0.5))


def _propose(walkers: _Walkers, distance: Tensor, step: int, bounds: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """A random point of the sphere through the row's point near it, and the same moved inwards."""
    x, at = walkers.x.flatten(1), walkers.at.flatten(1)
    length, sideways = distance[:, None], walkers.sideways[:, None]
    out = (at - x) / length.clamp_min(1e-12)
    way = walkers.rng.at(step).normal((x.shape[1],)).to(x.dtype)
    way = way - (way * out).sum(1, keepdim=True) * out
    way = norms.steepest(way, "l2")
    side = x + length * (out + sideways * way) / (1 + sideways.square()).sqrt()
    side = side.clamp_(*bounds)
    # What clipping took from the distance counts as a part of the way inwards.
    offset = side - x
    now = torch.linalg.vector_norm(offset, dim=1, keepdim=True)
    wanted = length * (1 - walkers.inwards[:, None])
    point = x + offset * (wanted / now.clamp_min(1e-12)).clamp_max(1.0)
    return side.view_as(walkers.x), point.clamp_(*bounds).view_as(walkers.x)
