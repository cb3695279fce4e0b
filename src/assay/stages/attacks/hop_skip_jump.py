"""HopSkipJump: along the border by estimated gradients, by the target's labels alone."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay.core import norms
from assay.core.errors import UsageError
from assay.core.norms import Norm
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.core.shapes import column
from assay.stages.attacks.label_start import Labels, bisect, find_start
from assay.stages.attacks.minimal import check_norm
from assay.subjects.target import Target

BLOCK = 8  # evaluations whose random directions are drawn at once
FEWEST = 20  # evaluations that are worth a step
HALVINGS = 20
BISECTIONS = 22  # float32 tells no more points of a line apart


@register("attack", paper="Chen et al. 2020", needs=("label",))
def hop_skip_jump(
    target: Target,
    x: Tensor,
    y: Tensor,
    *,
    rng: Rows,
    eps: float | None = None,
    norm: str = "l2",
    queries: int = 5000,
    evaluations: int = 100,
    gamma: float = 1.0,
    starts: int = 200,
    targeted: bool = False,
) -> Tensor:
    """Nearest adversarial point by labels alone: steps along the border, its slope estimated by samples; l2 and linf.

    A row is asked at most ``queries`` times, the search for its start included: up to ``starts`` noise images, the
    first of the wanted kind, brought to the border by bisection. Step t estimates the slope there with ``evaluations``
    · √t samples, moves along it by a length halved until the point is adversarial, and bisects again. ``gamma`` scales
    how near the border a bisection goes and how far the samples lie. Rows without a start come back as they were; with
    ``eps``, so do rows that do not come within it, and a row that does ends there.

    Formula: slope ≈ mean over samples u of (φ(x + δu) − φ̄)·u, φ = +1 where adversarial, −1 where not (its sign in
    linf); xₜ₊₁ = bisect(x, xₜ + ξ·slope), ξ halved from ‖xₜ − x‖/√t until adversarial.
    """
    checked = check_norm("hop_skip_jump", norm, eps, ("l2", "linf"))
    if min(queries, evaluations, starts) < 1 or gamma <= 0:
        told = f"queries {queries}, evaluations {evaluations}, starts {starts}, gamma {gamma}"
        raise UsageError(f"hop_skip_jump needs queries, evaluations, starts and gamma above 0; got {told}")
    labels = Labels(target, targeted, tuple(x.shape[1:]))
    hops = _Hops(labels, checked, eps, queries, evaluations, gamma)
    with target.ready(), torch.no_grad():
        rows, far, used = find_start(labels, x, y, rng.at(0), min(starts, queries - 1))
        return hops.run(x, _Walkers(rows, x[rows], y[rows], far, used, rng[rows].at(1)))


@dataclass(frozen=True, slots=True)
class _Walkers:
    """The rows on their way: row numbers, clean inputs, labels, where they are, queries spent, randomness."""

    rows: Tensor
    x: Tensor
    y: Tensor
    at: Tensor
    used: Tensor
    rng: Rows

    def only(self, on: Tensor) -> "_Walkers":
        rows, x, y, at, used = (t[on] for t in (self.rows, self.x, self.y, self.at, self.used))
        return _Walkers(rows, x, y, at, used, self.rng[on])


class _Hops:
    """One run: what stays the same over all its steps."""

    def __init__(
        self, labels: Labels, norm: Norm, eps: float | None, queries: int, evaluations: int, gamma: float
    ) -> None:
        self.labels, self.norm, self.eps = labels, norm, eps
        self.queries, self.evaluations, self.gamma = queries, evaluations, gamma
        self.bounds = labels.target.spec.bounds

    def run(self, x: Tensor, walkers: _Walkers) -> Tensor:
        """The nearest points found (N, *shape); rows that have none, or none within eps, as they were."""
        entries = max(2, math.prod(x.shape[1:]))
        power = 2.0 if self.norm == "linf" else 1.5
        bisections = min(BISECTIONS, max(1, math.ceil(power * math.log2(entries) - math.log2(self.gamma))))
        out = x.clone()
        nearest = torch.full((len(x),), torch.inf if self.eps is None else self.eps, dtype=x.dtype, device=x.device)
        on = (walkers.used + bisections <= self.queries).nonzero().squeeze(1)
        self._keep(walkers, out, nearest)
        walkers = self._to_border(walkers.only(on), bisections)
        step = 0
        while True:
            distance = self._keep(walkers, out, nearest)
            room = self.queries - walkers.used - bisections - 1
            done = room < FEWEST if self.eps is None else (room < FEWEST) | (distance <= self.eps)
            on = (~done).nonzero().squeeze(1)
            walkers, distance, room = walkers.only(on), distance[on], room[on]
            if not len(on):
                return out
            count = room.clamp_max(int(self.evaluations * math.sqrt(step + 1)))
            spread = self.gamma * distance / entries
            spread = torch.full_like(spread, 0.1 * (self.bounds[1] - self.bounds[0])) if step == 0 else spread
            slope = self._slope(walkers, count, spread, step)
            walkers = replace(walkers, used=walkers.used + count)
            walkers = self._jump(walkers, slope, distance / math.sqrt(step + 1), bisections)
            step += 1

    def _keep(self, walkers: _Walkers, out: Tensor, nearest: Tensor) -> Tensor:
        """Write down who is nearer than ever before (and within eps); the distances now, (M,)."""
        distance = norms.size(walkers.at - walkers.x, self.norm)
        nearer = distance <= nearest[walkers.rows]
        rows = walkers.rows[nearer]
        out[rows], nearest[rows] = walkers.at[nearer], distance[nearer]
        return distance

    def _to_border(self, walkers: _Walkers, steps: int) -> _Walkers:
        if not len(walkers.rows):
            return walkers
        at = bisect(self.labels, walkers.x, walkers.at, walkers.y, self.norm, steps)
        return replace(walkers, at=at, used=walkers.used + steps)

    def _jump(self, walkers: _Walkers, slope: Tensor, length: Tensor, bisections: int) -> _Walkers:
        """Along the slope as far as the point stays adversarial, halving the length, then back to the border."""
        at, used = walkers.at.clone(), walkers.used.clone()
        trying = torch.arange(len(at), device=at.device)
        moved = torch.zeros(len(at), dtype=torch.bool, device=at.device)
        for _ in range(HALVINGS):
            trying = trying[used[trying] + bisections < self.queries]
            if not len(trying):
                break
            point = (walkers.at[trying] + column(length[trying], slope) * slope[trying]).clamp_(*self.bounds)
            hit = self.labels.reached(point, walkers.y[trying])
            used[trying] += 1
            at[trying[hit]], moved[trying[hit]] = point[hit], True
            length = length / 2
            trying = trying[~hit]
        walkers = replace(walkers, at=at, used=used)
        jumped = self._to_border(walkers.only(moved), bisections)
        at[moved], used[moved] = jumped.at, jumped.used
        return walkers

    def _slope(self, walkers: _Walkers, count: Tensor, spread: Tensor, step: int) -> Tensor:
        """Where the other side lies, of unit norm, from ``count`` (M,) labels of points ``spread`` (M,) away."""
        per_call = max(1, self.labels.call // BLOCK)
        rng = walkers.rng.at(step)
        parts = [
            self._estimate(walkers.at[part], walkers.y[part], rng[part], count[part], spread[part])
            for part in torch.arange(len(count), device=count.device).split(per_call)
        ]
        slope = torch.cat(parts)
        return norms.steepest(slope, self.norm)

    def _estimate(self, at: Tensor, y: Tensor, rng: Rows, count: Tensor, spread: Tensor) -> Tensor:
        n, most = len(at), int(count.max())
        blocks = max(1, self.labels.call // (n * BLOCK))
        wide = column(spread, at)[:, None]
        votes, weighted, plain = torch.zeros_like(spread), torch.zeros_like(at), torch.zeros_like(at)
        for first in range(0, math.ceil(most / BLOCK), blocks):
            last = min(first + blocks, math.ceil(most / BLOCK))
            way = torch.cat([self._directions(rng.at(b), at) for b in range(first, last)], 1)
            place = torch.arange(first * BLOCK, last * BLOCK, device=at.device)
            asked = place < count[:, None]
            points = (at[:, None] + wide * way).clamp_(*self.bounds)
            way = (points - at[:, None]).div_(wide.clamp_min(1e-12))  # what the bounds left of it
            vote = torch.zeros(asked.shape, dtype=at.dtype, device=at.device)
            owner = y[:, None].expand_as(asked)[asked]
            vote[asked] = torch.where(self.labels.reached(points[asked], owner), 1.0, -1.0).to(at.dtype)
            votes += vote.sum(1)
            # Block by block, so that rounding does not depend on how many blocks fit in a call.
            way = way.view(n, -1, BLOCK, *at.shape[1:])
            sign, counted = (t.view(*way.shape[:3], *([1] * (at.dim() - 1))) for t in (vote, asked))
            for signed, straight in zip((way * sign).sum(2).unbind(1), (way * counted).sum(2).unbind(1), strict=True):
                weighted += signed
                plain += straight
        mean = votes / count
        mean = torch.where(mean.abs() == 1, 0.0, mean)  # all alike: their mean direction is all there is to go by
        return weighted - column(mean, at) * plain

    def _directions(self, rng: Rows, like: Tensor) -> Tensor:
        """Random directions of length one, (M, BLOCK, *shape)."""
        shape = (BLOCK, *like.shape[1:])
        way = (rng.uniform(shape, -1.0, 1.0) if self.norm == "linf" else rng.normal(shape)).to(like.dtype)
        length = torch.linalg.vector_norm(way.flatten(2), dim=2).clamp_min(1e-12)
        return way.div_(length.view(len(like), BLOCK, *([1] * (like.dim() - 1))))
