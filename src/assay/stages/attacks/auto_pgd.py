"""Auto-PGD, the loop behind ``apgd_ce``, ``apgd_dlr`` and ``apgd_t`` (Croce and Hein 2020).

Projected gradient ascent with momentum and no step size to tune: each row starts with steps of twice eps and halves
them at checkpoints where it has stopped gaining, going back to the best point it has seen.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from assay.core import norms
from assay.core.aims import Aim
from assay.core.errors import UsageError
from assay.core.norms import Norm
from assay.core.randomness import Rows
from assay.core.shapes import column
from assay.stages.attacks.gradient import uphill
from assay.subjects.target import Target

MOMENTUM = 0.75  # weight of the new step against the one before
ENOUGH_RISES = 0.75  # share of steps that must gain for the step size to stay


@dataclass(frozen=True, slots=True)
class AutoPGD:
    """How to search; calling it does. Restarts go on only with rows that are not adversarial yet."""

    eps: float
    norm: str
    steps: int
    restarts: int
    early_stop: bool
    eot: int
    aim: Aim

    def __call__(self, target: Target, x: Tensor, y: Tensor, rng: Rows) -> Tensor:
        """For each row the first adversarial point, or the one with the highest gain, (N, *shape)."""
        search = _Search(self, target)
        with target.ready():
            best, hit, gain = search.run(x, y, rng.at(0))
            for restart in range(1, self.restarts):
                left = (~hit).nonzero().squeeze(1)
                if not len(left):
                    break
                again, now, more = search.run(x[left], y[left], rng[left].at(restart))
                take = now | (more > gain[left])
                rows = left[take]
                best[rows], hit[rows], gain[rows] = again[take], now[take], more[take]
        return best


class _State(NamedTuple):
    """The rows in play: everything is one tensor with a row each, so that leaving is one index."""

    rows: Tensor
    x: Tensor
    y: Tensor
    low: Tensor
    high: Tensor
    at: Tensor
    last: Tensor  # the point before
    grad: Tensor
    gain: Tensor
    best: Tensor
    best_grad: Tensor
    best_gain: Tensor
    stride: Tensor
    rises: Tensor  # steps that gained since the last checkpoint
    checked_gain: Tensor  # best gain at the last checkpoint
    halved: Tensor  # whether the step size fell there
    found: Tensor  # the last adversarial point: only kept without early stop
    hit: Tensor

    def of(self, rows: Tensor) -> "_State":
        return _State(*(column[rows] for column in self))


def checkpoints(steps: int) -> set[int]:
    """The steps after which step sizes are looked at: gaps of 22 % of all steps, shrinking by 3 % down to 6 %.

    >>> sorted(checkpoints(100))
    [22, 41, 57, 70, 80, 87, 93, 99]
    """
    gap, least, shrink = (max(int(share * steps), 1) for share in (0.22, 0.06, 0.03))
    found, at = set(), gap
    while at <= steps:
        found.add(at)
        gap = max(gap - shrink, least)
        at += gap
    return found


class _Search:
    def __init__(self, how: AutoPGD, target: Target) -> None:
        if how.steps < 1 or how.restarts < 1 or how.eot < 1:
            told = f"steps {how.steps}, restarts {how.restarts}, eot {how.eot}"
            raise UsageError(f"auto-PGD needs steps, restarts and eot of at least 1; got {told}")
        self.how, self.target = how, target
        self.norm: Norm = norms.check(how.norm, how.eps)
        if self.norm not in ("linf", "l2"):
            raise UsageError(f"auto-PGD knows linf and l2, not {self.norm}; pgd knows l1 too")
        self.looks = checkpoints(how.steps)

    def run(self, x: Tensor, y: Tensor, rng: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Points, whether they are adversarial, and their gain, from one random start."""
        state = self._start(x, y, rng)
        best, hit, gain = state.at.clone(), torch.zeros_like(state.hit), state.gain.clone()
        since = 0
        for step in range(1, self.how.steps + 1):
            if self.how.early_stop:
                state = self._let_go(state, best, hit, gain)
            if not len(state.rows):
                return best, hit, gain
            state = self._look(self._move(state, first=step == 1))
            since += 1
            if step in self.looks:
                state = self._adapt(state, since)
                since = 0
        if len(state.rows):
            best[state.rows] = torch.where(column(state.hit, x), state.found, state.best)
            hit[state.rows], gain[state.rows] = state.hit, state.best_gain
        return best, hit, gain

    def _start(self, x: Tensor, y: Tensor, rng: Rows) -> _State:
        offset = norms.random_edge(tuple(x.shape[1:]), self.how.eps, self.norm, rng).to(x.dtype)
        low, high = norms.box(x, self.how.eps, self.norm, self.target.spec.bounds)
        at = (x + offset).clamp(*self.target.spec.bounds)
        outputs, gain, grad = uphill(self.target, at, y, self.how.aim, self.how.eot)
        rows = torch.arange(len(x), device=x.device)
        stride = column(torch.full_like(gain, 2 * self.how.eps, dtype=x.dtype), x)
        zero = torch.zeros_like(gain)
        hit = self.how.aim.hit(outputs, y)
        # The first look may halve only for want of rises: `halved` starts true.
        return _State(
            rows, x, y, low, high, at, at, grad, gain, at, grad, gain, stride, zero, gain, torch.ones_like(hit), at, hit
        )

    def _let_go(self, state: _State, best: Tensor, hit: Tensor, gain: Tensor) -> _State:
        """Write down the rows that are adversarial and go on without them."""
        done = state.hit
        if not bool(done.any()):
            return state
        gone = state.rows[done]
        best[gone], hit[gone], gain[gone] = state.found[done], True, state.gain[done]
        return state.of((~done).nonzero().squeeze(1))

    def _move(self, state: _State, *, first: bool) -> _State:
        share = 1.0 if first else MOMENTUM
        if self.norm == "linf":
            step = torch.clamp(torch.addcmul(state.at, state.stride, state.grad.sign()), state.low, state.high)
        else:
            step = self._into_ball(state, state.at + state.stride * norms.steepest(state.grad, self.norm))
        if not first:
            # at + 0.75 (step - at) + 0.25 (at - last)
            step = step.mul_(share).add_(state.at, alpha=2 - 2 * share).sub_(state.last, alpha=1 - share)
            step = step.clamp_(state.low, state.high) if self.norm == "linf" else self._into_ball(state, step)
        return state._replace(at=step, last=state.at)

    def _into_ball(self, state: _State, point: Tensor) -> Tensor:
        inside = state.x + norms.project(point - state.x, self.how.eps, self.norm)
        return inside.clamp_(*self.target.spec.bounds)

    def _look(self, state: _State) -> _State:
        """Ask the target at the new point and remember what was best."""
        outputs, gain, grad = uphill(self.target, state.at, state.y, self.how.aim, self.how.eot)
        now = self.how.aim.hit(outputs, state.y)
        better = gain > state.best_gain
        wide = column(better, state.at)
        found = state.at if self.how.early_stop else torch.where(column(now, state.at), state.at, state.found)
        return state._replace(
            grad=grad,
            rises=state.rises + (gain > state.gain),
            gain=gain,
            best=torch.where(wide, state.at, state.best),
            best_grad=torch.where(wide, grad, state.best_grad),
            best_gain=torch.where(better, gain, state.best_gain),
            found=found,
            hit=state.hit | now,
        )

    def _adapt(self, state: _State, since: int) -> _State:
        """Halve the steps of rows that stopped gaining and send them back to their best point."""
        stuck = state.rises <= ENOUGH_RISES * since
        stuck |= ~state.halved & (state.best_gain <= state.checked_gain)
        wide = column(stuck, state.at)
        return state._replace(
            at=torch.where(wide, state.best, state.at),
            grad=torch.where(wide, state.best_grad, state.grad),
            stride=torch.where(wide, state.stride / 2, state.stride),
            rises=torch.zeros_like(state.rises),
            checked_gain=state.best_gain,
            halved=stuck,
        )
