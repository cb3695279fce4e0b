"""The one loop behind FGSM, BIM, MIM and PGD: climb the loss inside a ball, a batch at a time.

Per step one forward and one backward pass of the rows still in play; the forward pass that gives the gradient also
tells which rows are already adversarial, and those leave the batch.
"""

import torch
from torch import Tensor

from assay.core import norms
from assay.core.errors import UsageError
from assay.core.losses import Loss, named
from assay.core.norms import Norm
from assay.core.randomness import Rows
from assay.subjects.target import Target


def adversarial(logits: Tensor, y: Tensor, *, targeted: bool) -> Tensor:
    """Which rows reached the attack's aim, (N,): another class than ``y``, or class ``y`` itself when targeted."""
    hit = logits.argmax(1) == y
    return hit if targeted else ~hit


def climb(
    target: Target,
    x: Tensor,
    y: Tensor,
    *,
    rng: Rows,
    eps: float,
    norm: str,
    steps: int,
    step: float,
    random_start: bool,
    restarts: int = 1,
    decay: float = 0.0,
    targeted: bool = False,
    early_stop: bool = True,
    loss: str = "ce",
) -> Tensor:
    """Inputs inside the ball with the highest loss found, (N, *shape).

    ``step`` is a share of ``eps``; ``decay`` above 0 accumulates momentum. With ``early_stop`` a row ends at its first
    adversarial iterate; without, every row takes all steps. Restarts go on only with rows that are not adversarial yet.
    """
    if steps < 1 or restarts < 1 or step <= 0 or decay < 0:
        raise UsageError(f"steps {steps}, restarts {restarts}, step {step}, decay {decay}: too small to attack with")
    walk = _Walk(target, norms.check(norm, eps), eps, steps, step, decay, targeted, early_stop, named(loss))
    with target.ready():
        best = walk.run(x, y, _start(x, target, walk, rng.at(0) if random_start else None))
        left = torch.arange(len(x), device=x.device)
        for restart in range(1, restarts):
            left = left[~walk.reached(best[left], y[left])]
            if not len(left):
                break
            again = walk.run(x[left], y[left], _start(x[left], target, walk, rng[left].at(restart)))
            best[left] = walk.better(again, best[left], y[left])
    return best


def _start(x: Tensor, target: Target, walk: "_Walk", rng: Rows | None) -> Tensor:
    if rng is None:
        return x
    offset = norms.random_point(tuple(x.shape[1:]), walk.eps, walk.norm, rng).to(x.dtype)
    return (x + offset).clamp(*target.spec.bounds)


class _Walk:
    """One climb: what stays the same over all its steps."""

    def __init__(
        self,
        target: Target,
        norm: Norm,
        eps: float,
        steps: int,
        step: float,
        decay: float,
        targeted: bool,
        early_stop: bool,
        loss: Loss,
    ) -> None:
        self.target, self.norm, self.eps, self.steps = target, norm, eps, steps
        self.stride, self.decay, self.early_stop, self.loss = step * eps, decay, early_stop, loss
        self.targeted = targeted
        self.sign = -1.0 if targeted else 1.0

    def run(self, x: Tensor, y: Tensor, start: Tensor) -> Tensor:
        out = start.clone()
        rows = torch.arange(len(x), device=x.device)
        at, velocity = start.clone(), None
        low, high = self._box(x)
        for _ in range(self.steps):
            if not len(rows):
                break
            logits, grad = self._slope(at, y)
            if self.early_stop:
                on = (~adversarial(logits, y, targeted=self.targeted)).nonzero().squeeze(1)
                if len(on) < len(rows):
                    out[rows] = at  # rows that leave now are final; the others are written again when they do
                    rows, x, y, at, grad, low, high = (t[on] for t in (rows, x, y, at, grad, low, high))
                    velocity = velocity if velocity is None else velocity[on]
            if self.decay:
                velocity = self._momentum(grad, velocity)
                grad = velocity
            at = self._move(at, grad, x, low, high)
        out[rows] = at
        return out

    def _slope(self, at: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and the gradient of the loss, uphill."""
        with torch.enable_grad():
            at = at.detach().requires_grad_()
            logits = self.target(at)
            total = self.loss(logits, y).sum() * self.sign
            (grad,) = torch.autograd.grad(total, at)
        return logits.detach(), grad

    def _momentum(self, grad: Tensor, velocity: Tensor | None) -> Tensor:
        flat = norms.scaled(grad.flatten(1))
        fresh = (flat / flat.abs().mean(1, keepdim=True).clamp_min(1e-12)).view_as(grad)
        return fresh if velocity is None else velocity * self.decay + fresh

    def _box(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Lowest and highest allowed values: for linf the ball and the bounds are one box."""
        low, high = self.target.spec.bounds
        if self.norm == "linf":
            return (x - self.eps).clamp_min_(low), (x + self.eps).clamp_max_(high)
        # Views of one number each, so that dropping rows costs nothing.
        return x.new_tensor(low).expand_as(x), x.new_tensor(high).expand_as(x)

    def _move(self, at: Tensor, grad: Tensor, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
        if self.norm == "linf":
            return torch.clamp(at.add_(grad.sign_(), alpha=self.stride), low, high)
        moved = at + self.stride * norms.steepest(grad, self.norm)
        # The clamp keeps the point in the ball: it never takes an entry away from x.
        return torch.clamp(x + norms.project(moved - x, self.eps, self.norm), low, high)

    def reached(self, at: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            return adversarial(self.target(at), y, targeted=self.targeted)

    def better(self, new: Tensor, old: Tensor, y: Tensor) -> Tensor:
        """Of two points for each row the one with the higher loss."""
        with torch.no_grad():
            gain = (self.loss(self.target(new), y) - self.loss(self.target(old), y)) * self.sign
        return torch.where((gain > 0).view(-1, *([1] * (new.dim() - 1))), new, old)
