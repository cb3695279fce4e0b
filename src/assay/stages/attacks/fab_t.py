"""FAB-T: the fast adaptive boundary attack towards one rival class after another."""

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core import norms
from assay.core.aims import aim
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.norms import Norm
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.core.shapes import column
from assay.stages.attacks.gradient import jacobian
from assay.stages.attacks.hyperplane import onto
from assay.stages.attacks.minimal import check_norm, check_positive, closer, kept
from assay.stages.attacks.rivals import at_once, full, rivals_of
from assay.subjects.target import Target


@register("attack", paper="Croce and Hein 2020", needs=("grad",))
def fab_t(
    target: Target,
    x: Tensor,
    y: Tensor,
    *,
    rng: Rows,
    eps: float | None = None,
    norm: str = "linf",
    targets: int = 9,
    steps: int = 100,
    restarts: int = 1,
    alpha_max: float = 0.1,
    eta: float = 1.05,
    beta: float = 0.9,
    final_search: int = 3,
    early_stop: bool = True,
) -> Tensor:
    """Smallest linf, l2 or l1 changes by projections on the boundary with each of the ``targets`` likeliest rivals.

    With ``eps`` a row is done at its first adversarial point of that size, unless ``early_stop`` is off. Restarts after
    the first begin at random points; ``final_search`` is the number of tries to come back nearer at the end.

    Formula: d(u) = the smallest step from u to the hyperplane where the linearised z_y = z_t, within the bounds;
    xₜ₊₁ = (1 − α)·(xₜ + eta·d(xₜ)) + α·(x + eta·d(x)), α = min(‖d(xₜ)‖ / (‖d(xₜ)‖ + ‖d(x)‖), alpha_max); after a
    success back by beta towards x.
    """
    chosen = check_norm("fab_t", norm, eps, ("linf", "l2", "l1"))
    check_positive("fab_t", targets=targets, steps=steps, restarts=restarts, eta=eta, beta=beta)
    if not 0 <= alpha_max <= 1:
        raise UsageError(f"fab_t: alpha_max is a share from 0 to 1, got {alpha_max}")
    enough = eps if eps is not None and early_stop else 0.0
    boundary = _Boundary(target, chosen, steps, alpha_max, eta, beta, enough)
    with target.ready():
        with torch.no_grad():
            right = target(x).argmax(1) == y
        best, least = _search(boundary, x, y, right, rivals_of(target, x, y, targets), restarts, eps, rng)
        far = (right & least.isfinite() & (least > enough)).nonzero().squeeze(1)
        best[far] = closer(target, x[far], y[far], best[far], aim("margin"), final_search)
    return kept(x, best, least.isfinite(), eps, chosen)


def _search(
    boundary: "_Boundary",
    x: Tensor,
    y: Tensor,
    right: Tensor,
    goals: Tensor,
    restarts: int,
    eps: float | None,
    rng: Rows,
) -> tuple[Tensor, Tensor]:
    """The nearest adversarial points over all rivals (N, C) in turn, and their sizes (N,)."""
    best, least = x.clone(), x.new_full((len(x),), torch.inf)
    width, rank = full(x.device), 0
    chunks = Chunks(max(len(x), width))
    while rank < goals.shape[1]:
        # A random start lies within what the rivals before have found, so restarts take one rival at a time.
        going = int((right & (least > boundary.enough)).sum())
        turn = at_once(rank, goals.shape[1], going, width) if restarts == 1 else range(rank, rank + 1)
        for restart in range(restarts):
            left = (right & (least > boundary.enough)).nonzero().squeeze(1)
            many, start = left.repeat(len(turn)), x[left]
            if restart:
                start = boundary.random_start(start, least[left], eps, rng[left].at(rank * restarts + restart))
            start = start.repeat(len(turn), *([1] * (x.dim() - 1)))
            goal = goals[left][:, turn.start : turn.stop].T.flatten()
            points = chunks.map(boundary.walk, x[many], y[many], goal, start)
            for point in points.split(max(len(left), 1)):  # as if the rivals had been tried one after another
                size = norms.size(point - x[left], boundary.norm)
                better = (size > 0) & (size < least[left]) & (least[left] > boundary.enough)
                best[left[better]], least[left[better]] = point[better], size[better]
        rank = turn.stop
    return best, least


@dataclass(frozen=True, slots=True)
class _Boundary:
    """The walk along a boundary: what stays the same over all its steps. Rows of size ``enough`` or less are done."""

    target: Target
    norm: Norm
    steps: int
    alpha_max: float
    eta: float
    beta: float
    enough: float

    def random_start(self, x: Tensor, least: Tensor, eps: float | None, rng: Rows) -> Tensor:
        """A random point at half the size found so far or ``eps``, the smaller; else at a tenth of the box."""
        low, high = self.target.spec.bounds
        widest = norms.size(torch.full_like(x, high - low), self.norm) / 5
        radius = least.clamp_max(eps) if eps is not None else torch.where(least.isfinite(), least, widest)
        offset = rng.normal(tuple(x.shape[1:])).to(x.dtype)
        offset *= column(radius / 2 / norms.size(offset, self.norm).clamp_min(1e-12), x)
        return (x + offset).clamp_(low, high)

    def walk(self, x: Tensor, y: Tensor, goal: Tensor, at: Tensor) -> Tensor:
        """The nearest adversarial points met (N, *shape), the inputs themselves where there was none."""
        rows = torch.arange(len(x), device=x.device)
        best, least = x.clone(), x.new_full((len(x),), torch.inf)
        out = best.clone()
        for _ in range(self.steps):
            if not len(rows):
                break
            at = self._step(x, y, goal, at)
            with torch.no_grad():
                hit = self.target(at).argmax(1) != y
            size = norms.size(at - x, self.norm)
            better = hit & (size < least)
            best, least = torch.where(column(better, x), at, best), torch.where(better, size, least)
            at = torch.lerp(x, at, column(torch.where(hit, self.beta, 1.0).to(x.dtype), x))
            if self.enough:
                on = (least > self.enough).nonzero().squeeze(1)
                if len(on) < len(rows):
                    out[rows] = best
                    rows, x, y, goal, at, best, least = (t[on] for t in (rows, x, y, goal, at, best, least))
        out[rows] = best
        return out

    def _step(self, x: Tensor, y: Tensor, goal: Tensor, at: Tensor) -> Tensor:
        """Over the linearised boundary with ``goal``: mostly from where it is, a little from the clean input."""
        ((ahead, grad),) = jacobian(self.target, at, y, goal[:, None])
        slope, ahead = grad.flatten(1), ahead.to(x.dtype)
        clean = ahead + ((x - at).flatten(1) * slope).sum(1)
        both, gaps = torch.cat([at, x]), -torch.cat([ahead, clean])
        move = onto(both.flatten(1), slope.repeat(2, 1), gaps, self.target.spec.bounds, self.norm)
        here, home = norms.size(move, self.norm).clamp_min_(1e-8).chunk(2)
        past, fresh = (both + self.eta * move.view_as(both)).chunk(2)
        alpha = (here / (here + home)).clamp_max_(self.alpha_max)
        return torch.lerp(past, fresh, column(alpha, x)).clamp_(*self.target.spec.bounds)
