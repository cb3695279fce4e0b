"""The one loop behind FGSM, BIM, MIM and PGD: climb the loss inside a ball, a batch at a time.

Per step one forward and one backward pass of the rows still in play; the forward pass that gives the gradient also
tells which rows are already adversarial, and those leave the batch.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core import norms
from assay.core.aims import Criterion, aim
from assay.core.errors import UsageError
from assay.core.losses import Loss, log_odds
from assay.core.norms import Norm
from assay.core.randomness import Rows
from assay.core.shapes import column
from assay.stages.attacks.gradient import uphill
from assay.subjects.target import Target

SPARSE = 0.01  # share of the entries that one l1 step changes


def strides(steps: int, step: float, *, falling: bool) -> list[float]:
    """How long each step is, as a share of the radius."""
    return [step * (1 - i / steps) if falling else step for i in range(steps)]


@dataclass(frozen=True, slots=True)
class Climb:
    """How to climb; calling it does.

    ``step`` is a share of ``eps``; ``decay`` above 0 accumulates momentum. With ``early_stop`` a row ends at its first
    adversarial iterate; without, every row takes all steps. A row also ends where its loss can gain no more than
    ``converged`` in the ball, by its slope there. Restarts go on only with rows that are not adversarial yet. Steps
    that are ``falling`` are ``step`` at first and fall evenly, the last of n to an nth of it.
    """

    eps: float
    norm: str
    steps: int
    step: float
    random_start: bool = False
    restarts: int = 1
    decay: float = 0.0
    targeted: bool = False
    early_stop: bool = True
    loss: str | Loss = "ce"
    criterion: str | Criterion = "top"
    converged: float = 0.0
    falling: bool = False

    def __call__(self, target: Target, x: Tensor, y: Tensor, rng: Rows) -> Tensor:
        """The inputs after the climb, inside the ball and the bounds, (N, *shape)."""
        walk = _Walk(self, target)
        with target.ready():
            best = walk.run(x, y, walk.start(x, rng.at(0) if self.random_start else None))
            left = torch.arange(len(x), device=x.device)
            for restart in range(1, self.restarts):
                left = left[~walk.reached(best[left], y[left])]
                if not len(left):
                    break
                again = walk.run(x[left], y[left], walk.start(x[left], rng[left].at(restart)))
                best[left] = walk.better(again, best[left], y[left])
        return best


class _Walk:
    """One climb on one target: what stays the same over all its steps."""

    def __init__(self, how: Climb, target: Target) -> None:
        if how.steps < 1 or how.restarts < 1 or how.step <= 0 or how.decay < 0 or how.converged < 0:
            told = f"steps {how.steps}, restarts {how.restarts}, step {how.step}, decay {how.decay}"
            told += f", converged {how.converged}"
            raise UsageError(
                f"an attack needs steps, restarts and step above 0, no negative decay or converged; got {told}"
            )
        self.how, self.target = how, target
        self.norm: Norm = norms.check(how.norm, how.eps)
        if self.norm == "l0":
            raise UsageError("the gradient attacks fgsm, bim, mim and pgd know linf, l2 and l1; jsma knows l0")
        self.strides = [share * how.eps for share in strides(how.steps, how.step, falling=how.falling)]
        self.aim = aim(how.loss, how.criterion, how.targeted)

    def start(self, x: Tensor, rng: Rows | None) -> Tensor:
        if rng is None:
            return x
        offset = norms.random_point(tuple(x.shape[1:]), self.how.eps, self.norm, rng).to(x.dtype)
        return (x + offset).clamp(*self.target.spec.bounds)

    def run(self, x: Tensor, y: Tensor, start: Tensor) -> Tensor:
        out = start.clone()
        rows = torch.arange(len(x), device=x.device)
        at, velocity = start.clone(), None
        low, high = norms.box(x, self.how.eps, self.norm, self.target.spec.bounds)
        for stride in self.strides:
            if not len(rows):
                break
            outputs, gain, grad = uphill(self.target, at, y, self.aim)
            if self.how.early_stop or self.how.converged:
                on = (~self._ended(outputs, gain, grad, at - x, y)).nonzero().squeeze(1)
                if len(on) < len(rows):
                    out[rows] = at  # rows that leave now are final; the others are written again when they do
                    rows, x, y, at, grad, low, high = (t[on] for t in (rows, x, y, at, grad, low, high))
                    velocity = velocity if velocity is None else velocity[on]
            if self.how.decay:
                velocity = self._momentum(grad, velocity)
                grad = velocity
            at = self._move(at, grad, stride, x, low, high)
        out[rows] = at
        return out

    def _ended(self, outputs: Tensor, gain: Tensor, grad: Tensor, delta: Tensor, y: Tensor) -> Tensor:
        """Which rows go no further."""
        ended = self.aim.hit(outputs, y) if self.how.early_stop else torch.zeros_like(gain, dtype=torch.bool)
        if not self.how.converged:
            return ended
        left = norms.first_order(grad, delta, self.how.eps, self.norm)
        if self.aim.loss is log_odds:  # whose slope is that of cross-entropy over the chance of being wrong
            left = left * gain.sigmoid()
        return ended | (left <= self.how.converged)

    def reached(self, at: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            return self.aim.hit(self.target(at), y)

    def better(self, new: Tensor, old: Tensor, y: Tensor) -> Tensor:
        """Of two points for each row the adversarial one, and of two alike the one with the higher loss."""
        with torch.no_grad():
            after, before = self.target(new), self.target(old)
            gain = self.aim.gain(after, y) - self.aim.gain(before, y)
            hit, was = self.aim.hit(after, y), self.aim.hit(before, y)
        take = (hit & ~was) | ((hit == was) & (gain > 0))
        return torch.where(column(take, new), new, old)

    def _momentum(self, grad: Tensor, velocity: Tensor | None) -> Tensor:
        flat = norms.scaled(grad.flatten(1))
        fresh = (flat / flat.abs().mean(1, keepdim=True).clamp_min(1e-12)).view_as(grad)
        return fresh if velocity is None else velocity * self.how.decay + fresh

    def _move(self, at: Tensor, grad: Tensor, stride: float, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
        if self.norm == "linf":
            # Out of place for the gradient: a momentum attack still needs it.
            return torch.clamp(at.add_(grad.sign(), alpha=stride), low, high)
        if self.norm == "l1":
            # Entries at the end of the box that want to go on would use up the few that a step may change.
            free = grad.where(((at < high) | (grad < 0)) & ((at > low) | (grad > 0)), 0.0)
            moved = at + stride * norms.sparse(free, SPARSE)
            return (x + norms.project_l1_box(moved - x, self.how.eps, low - x, high - x)).clamp_(low, high)
        moved = at + stride * norms.steepest(grad, self.norm)
        # The clamp keeps the point in the ball: it never takes an entry away from x.
        return torch.clamp(x + norms.project(moved - x, self.how.eps, self.norm), low, high)
