"""Probes of gradients: are they there, do they lead uphill, and do answers change without jumps?"""

from typing import NamedTuple

import torch
from torch import Tensor

from assay.core import norms
from assay.core.losses import log_odds
from assay.core.norms import Norm
from assay.core.randomness import Rows
from assay.engines.checks.look import Look, width

LENGTHS = (0.05, 0.1, 0.25)  # of eps: what attacks step
FARTHEST = 0.1  # of the range of the inputs: further out no gradient need lead uphill
RIVALS = 3  # random directions that a gradient must beat
PARTS = 10  # of the way from an input to another, before the widest is halved
HALVINGS = 12


class Slope(NamedTuple):
    """Gradients at one kind of points, (N,) each."""

    where: str
    lost: Tensor  # zero or undefined
    faint: Tensor  # there, but promising no change of the answer over the whole range of the inputs
    blind: Tensor  # there, but a step along it gains nothing, or less than a random one


def slopes(look: Look) -> list[Slope]:
    """Gradients at the clean inputs of ``few`` and at noisy ones."""
    cases = look.few
    rng = look.rows(cases, "rivals")
    return [
        _slope(look, "clean inputs", cases.x, cases.y, rng.at(0)),
        _slope(look, "inputs with noise", look.noisy(cases), cases.y, rng.at(1)),
    ]


def gradient(look: Look, x: Tensor, y: Tensor) -> Tensor:
    """The gradient of the log-odds as it comes: not a number where it is undefined, zero where there is none."""

    def work(x: Tensor, y: Tensor) -> Tensor:
        with torch.enable_grad():
            at = x.detach().requires_grad_()
            gain = log_odds(look.target(at), y).sum()
            found = torch.autograd.grad(gain, at, allow_unused=True)[0] if gain.requires_grad else None
        return torch.zeros_like(x) if found is None else found.detach()

    with look.target.ready():
        return look.chunks.map(work, x, y)


def lost(grad: Tensor) -> Tensor:
    """Which gradients an attack cannot use: zero, or not a number, (N,)."""
    flat = grad.flatten(1)
    return ~flat.isfinite().all(1) | (flat == 0).all(1)


def _slope(look: Look, where: str, x: Tensor, y: Tensor, rng: Rows) -> Slope:
    grad = gradient(look, x, y)
    gone = lost(grad)
    grad = grad.nan_to_num(0.0, 0.0, 0.0)
    scores = look.ask(x)
    before, dust = log_odds(scores, y), look.grain * width(scores)
    low, high = look.target.spec.bounds
    faint = ~gone & (grad.flatten(1).abs().sum(1) * (high - low) < dust)
    blind = torch.zeros_like(gone)
    for length in _lengths(look, x):
        own = log_odds(look.ask(_stepped(look, x, grad, length)), y) - before
        best = torch.full_like(own, -torch.inf)
        for rival in range(RIVALS):
            way = rng.at(rival).normal(tuple(x.shape[1:])).to(x.dtype)
            best = torch.maximum(best, log_odds(look.ask(_stepped(look, x, way, length)), y) - before)
        # Where neither moves the answer by more than rounding does, the step was too short to tell.
        told = torch.maximum(own.abs(), best.abs()) > dust
        blind |= told & ((own <= 0) | (own < best - dust))
    return Slope(where, gone, faint, blind & ~gone & ~faint)


def _lengths(look: Look, x: Tensor) -> list[float]:
    near = look.near
    low, high = look.target.spec.bounds
    most = FARTHEST * (high - low) * (1.0 if near.norm == "linf" else x[0].numel() ** 0.5 if len(x) else 1.0)
    return [share * min(near.eps, most) for share in LENGTHS]


def _stepped(look: Look, x: Tensor, way: Tensor, length: float) -> Tensor:
    """A step of that length; entries at the end of their range do not try to leave it."""
    norm: Norm = "linf" if look.near.norm == "linf" else "l2"
    low, high = look.target.spec.bounds
    free = way.where(((x > low) | (way > 0)) & ((x < high) | (way < 0)), 0.0)
    return (x + length * norms.steepest(free, norm)).clamp(low, high)


def jumps(look: Look, start: Tensor, end: Tensor) -> Tensor:
    """The largest jump of the scores on the way from ``start`` to ``end``, as a share of their spread, (N,).

    The widest change between neighbours on the way is halved until what is left of it is a jump: where scores are
    continuous it shrinks with every halving.
    """
    rows = torch.arange(len(start), device=start.device)

    def at(place: Tensor) -> Tensor:
        share = place.view(-1, *([1] * (start.dim() - 1)))
        return look.ask((start + share * (end - start)).to(start.dtype))

    places = torch.linspace(0, 1, PARTS + 1, device=start.device)
    known = torch.stack([at(place.expand(len(start))) for place in places])
    widest = (known[1:] - known[:-1]).abs().amax(2).argmax(0)
    low, high = places[widest], places[widest + 1]
    below, above = known[widest, rows], known[widest + 1, rows]
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        scores = at(middle)
        upper = (above - scores).abs().amax(1) > (scores - below).abs().amax(1)
        low, high = torch.where(upper, middle, low), torch.where(upper, high, middle)
        below = torch.where(upper[:, None], scores, below)
        above = torch.where(upper[:, None], above, scores)
    return (above - below).abs().amax(1) / width(known[0]).clamp_min(1e-12)
