"""The l2 attack of Carlini and Wagner: the smallest change that fools, by descent on distance and loss together."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from assay.core import norms
from assay.core.aims import Aim, Criterion, aim
from assay.core.errors import UsageError
from assay.core.losses import Loss
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.core.shapes import column
from assay.stages.attacks.gradient import uphill
from assay.stages.attacks.minimal import check_norm, check_positive, closer, kept
from assay.subjects.target import Target

# Paper's code: all entries times 0.999999. Here: only entries at the bounds, and further in, because Adam takes dozens
# of steps back from where tanh is that flat.
_INSIDE = 0.98
# Paper: c and the step stay as they are within a search. Here: both adapt row by row, because one search then does the
# work of the paper's binary search; adapt=0 is the paper's.
_FALL = 2.5  # c falls that much faster than it rises: an adversarial row keeps its best point, so overshooting is cheap
_SETTLE = 0.95  # what the step is multiplied by whenever a row crosses its boundary
_REACH = 2.0  # the longest step, in those of a linear net: more only bounces over a boundary that is near


@register("attack", paper="Carlini and Wagner 2017", needs=("grad",))
def cw(
    target: Target,
    x: Tensor,
    y: Tensor,
    *,
    rng: Rows,
    eps: float | None = None,
    norm: str = "l2",
    steps: int = 100,
    searches: int = 4,
    lr: float = 0.2,
    c: float = 1.0,
    adapt: float = 0.02,
    confidence: float = 0.0,
    targeted: bool = False,
    early_stop: bool = True,
    abort_early: bool = True,
    final_search: int = 3,
    loss: str | Loss = "margin",
    criterion: str | Criterion = "top",
) -> Tensor:
    """Smallest l2 changes by Adam on distance² + c · loss, one gradient a step, at most steps · searches + 1 in all.

    ``c`` is in units of what the first gradient says a linear net would need. With ``adapt`` it rises by that share at
    every step on which a row is not adversarial and falls on the others, the step ``lr`` shrinks as a row settles, and
    only rows never adversarial are searched again, at ten times the c; ``adapt=0`` is the paper's: c and lr stay, and a
    binary search over c takes all rows through all searches. A row is adversarial when the criterion says so and the
    loss is at least ``confidence``. With ``eps`` a row is done at its first adversarial point of that size unless
    ``early_stop`` is off; ``abort_early`` drops rows that stopped improving. ``final_search`` is the number of tries
    (forward passes) to come back nearer at the end; the paper has none.

    Formula: min ‖x' − x‖₂² + c · max(z_y − max_{i≠y} zᵢ + confidence, 0) over w, x' = tanh(w) scaled to the bounds,
    by Adam; other losses: c · max(confidence − L, 0).
    """
    chosen = check_norm("cw", norm, eps, ("l2",))
    check_positive("cw", steps=steps, searches=searches, lr=lr, c=c)
    if confidence < 0 or not 0 <= adapt < 1 / _FALL:
        raise UsageError(f"cw needs confidence from 0 and adapt from 0 to {1 / _FALL}, got {confidence} and {adapt}")
    enough = eps if eps is not None and early_stop else 0.0
    descent = _Descent(target, aim(loss, criterion, targeted), steps, lr, adapt, confidence, enough, abort_early)
    with target.ready():
        outputs, gain, grad = uphill(target, x, y, descent.aim)
        todo = ~descent.aim.hit(outputs, y)
        best, least = _search(descent, x, y, descent.linear(gain, grad), todo, c, searches)
        far = (least.isfinite() & (least > enough)).nonzero().squeeze(1)
        best[far] = closer(target, x[far], y[far], best[far], descent.aim, final_search, confidence)
    return kept(x, best, least.isfinite(), eps, chosen)


def _search(
    descent: "_Descent", x: Tensor, y: Tensor, linear: tuple[Tensor, Tensor], todo: Tensor, c: float, searches: int
) -> tuple[Tensor, Tensor]:
    """The best points (N, *shape) over several constants c for each row, and their sizes (N,)."""
    best, least = x.clone(), x.new_full((len(x),), torch.inf)
    unit, stride = linear
    low, high, now = torch.zeros_like(least), torch.full_like(least, torch.inf), unit * c
    for _ in range(searches):
        left = (todo & (least > descent.enough)).nonzero().squeeze(1)
        if not len(left):
            break
        lr = torch.full_like(now, descent.lr)
        if descent.adapt:
            lr = torch.minimum(lr, stride * (now / unit).clamp_min(1))
        point, size = descent.run(x[left], y[left], now[left], lr[left])
        better = size < least[left]
        best[left[better]], least[left[better]] = point[better], size[better]
        found, tried = size.isfinite(), now[left]
        high[left] = torch.where(found, tried, high[left])
        low[left] = torch.where(found, low[left], tried)
        now = torch.where(high.isfinite(), (low + high) / 2, now * 10)
        if descent.adapt:
            # Paper: every row again with a better c. Here: c was bettered on the way, once more brings next to nothing.
            todo = todo & ~least.isfinite()
    return best, least


@dataclass(frozen=True, slots=True)
class _Descent:
    """One run of Adam for each row: what stays the same over all its steps."""

    target: Target
    aim: Aim
    steps: int
    lr: float
    adapt: float
    confidence: float
    enough: float
    abort_early: bool

    def linear(self, gain: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Of a linear net: the c whose minimum is on its boundary (N,), and the longest step of an entry of w (N,)."""
        # Paper: c starts at one small number. Here: at what a linear net needs, with distances in widths of the box,
        # because then neither the scale of the scores nor that of the inputs matters.
        low, high = self.target.spec.bounds
        slope = norms.size(grad, "l2") * (high - low)
        away = (self.confidence - gain).abs().to(grad.dtype) / slope
        need, stride = 2 * away / slope, _REACH * 2 * away / max(grad[:1].numel(), 1) ** 0.5
        need, stride = (torch.where(t.isfinite() & (t > 0), t, 1.0) for t in (need, stride))
        return need, stride

    def run(self, x: Tensor, y: Tensor, c: Tensor, lr: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest adversarial points met (N, *shape), and their sizes (N,), infinite where there was none."""
        low, high = self.target.spec.bounds
        w = ((2 * x - high - low) / (high - low)).clamp_(-_INSIDE, _INSIDE).atanh_()
        rows, never = torch.arange(len(x), device=x.device), torch.full_like(c, torch.inf)
        zero, was = torch.zeros_like(w), torch.zeros_like(rows, dtype=torch.bool)
        play = _Play(rows, x, y, c, lr, was, w, zero, zero.clone(), x, never, never, never, never)
        out, sizes = x.clone(), never.clone()
        for step in range(1, self.steps + 1):
            distance, short = self._move(play, step)
            on = self._going_on(play, distance, short, step)
            if on is not None and len(on) < len(play.rows):
                out[play.rows], sizes[play.rows] = play.best, play.least
                play = play.only(on)
            if not len(play.rows):
                break
        out[play.rows], sizes[play.rows] = play.best, play.least
        return out, sizes

    def _move(self, play: "_Play", step: int) -> tuple[Tensor, Tensor]:
        """One gradient and one step of Adam; the distance² (N,) before it and by how much the loss fell short (N,)."""
        low, high = self.target.spec.bounds
        half, width = (high - low) / 2, high - low
        bend = play.w.tanh()
        at = (bend * half).add_((high + low) / 2).clamp_(low, high)
        outputs, gain, grad = uphill(self.target, at, play.y, self.aim)
        hit = self.aim.hit(outputs, play.y) & (gain >= self.confidence)
        delta = at - play.x
        size = norms.size(delta, "l2")
        better = hit & (size < play.least)
        play.best = torch.where(column(better, at), at, play.best)
        play.least = torch.where(better, size, play.least)
        pull = column(torch.where(hit, 0.0, play.c), at)
        slope = delta.mul_(2 / width**2).sub_(grad.mul_(pull)).mul_(bend.square_().neg_().add_(1)).mul_(half)
        if self.adapt:
            play.c = play.c * torch.where(hit, 1 - _FALL * self.adapt, 1 + self.adapt).to(play.c.dtype)
            play.lr = play.lr * torch.where(hit != play.was, _SETTLE, 1.0).to(play.lr.dtype)
            play.was = hit
        play.mean.lerp_(slope, 0.1)
        play.spread.mul_(0.999).addcmul_(slope, slope, value=0.001)
        root = (play.spread / (1 - 0.999**step)).sqrt_().add_(1e-8)
        play.w.sub_((play.mean / root).mul_(column(play.lr / (1 - 0.9**step), at)))
        return (size / width) ** 2, torch.where(hit, 0.0, self.confidence - gain).to(size.dtype)

    def _going_on(self, play: "_Play", distance: Tensor, short: Tensor, step: int) -> Tensor | None:
        """The places of the rows that go on; None where that is not asked at this step."""
        stop = play.least <= self.enough
        # Paper: when the loss of the whole batch has not fallen by 0.01 % in a tenth of the steps. Here: row by row, at
        # the c of now, and not while a row comes nearer all the same or its c still rises to its first success.
        if self.abort_early and step % max(self.steps // 10, 1) == 0:
            falls = distance + play.c * short < 0.9999 * (play.mark_distance + play.c * play.mark_short)
            nearer = play.least < 0.9999 * play.mark_least
            waits = play.least.isinf() if self.adapt else torch.zeros_like(falls)
            stop = stop | ~(falls | nearer | waits)
            play.mark_distance, play.mark_short, play.mark_least = distance, short, play.least
        elif not self.enough:
            return None
        return (~stop).nonzero().squeeze(1)


@dataclass(slots=True)
class _Play:
    """The rows still in play: inputs, constants, whether adversarial, Adam's state, best points, last marks."""

    rows: Tensor
    x: Tensor
    y: Tensor
    c: Tensor
    lr: Tensor
    was: Tensor
    w: Tensor
    mean: Tensor
    spread: Tensor
    best: Tensor
    least: Tensor
    mark_distance: Tensor
    mark_short: Tensor
    mark_least: Tensor

    def only(self, on: Tensor) -> "_Play":
        """These rows of it."""
        return _Play(*(getattr(self, field.name)[on] for field in fields(self)))
