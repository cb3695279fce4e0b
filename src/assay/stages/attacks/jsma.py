"""Jacobian-based saliency map attack."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.aims import Aim, Criterion, aim
from assay.core.errors import UsageError
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.stages.attacks.gradient import back
from assay.stages.attacks.minimal import check_norm
from assay.stages.attacks.saliency import best_pair, top_pair
from assay.subjects.target import Target


@register("attack", paper="Papernot et al. 2016", needs=("grad",))
def jsma(
    target: Target,
    x: Tensor,
    y: Tensor,
    *,
    rng: Rows,
    eps: float | None = None,
    norm: str = "l0",
    theta: float = 1.0,
    gamma: float = 0.1,
    scores: str = "prob",
    targets: int = 1,
    candidates: int = 64,
    targeted: bool = False,
    criterion: str | Criterion = "top",
) -> Tensor:
    """Changes few entries a lot, the most salient pair at a time, towards one class; l0.

    ``eps`` is how many entries may change; without it, it is the share ``gamma`` of all of them. A changed entry moves
    by ``theta`` times the range of the inputs, down where theta is negative. Rows that do not get there come back as
    they were.

    ``scores`` says what the saliency is of. With "logit" (the paper; two backward passes a step) a pair scores by the
    slope of the wanted class times that of the sum of all others; the pair is the best one as long as no more than
    ``candidates`` entries can be part of it, see ``saliency.best_pair``. With "prob" the others lose what the wanted
    class gains and the two largest slopes are the best pair: one backward pass, fewer changes and more success (MNIST,
    LeNet-5: 98 % against 70 % of the targets y + 1).

    The method needs a class to go to. Untargeted, it goes to the most likely class but ``y`` of the clean input, then
    to the next, ``targets`` classes in all; any wrong answer on the way ends it.

    Formula: saliency of a pair (p, q) towards class t: −(αₚ + α_q)·(βₚ + β_q) where α > 0 > β, α = ∂F_t/∂x, β =
    Σ_{i≠t} ∂Fᵢ/∂x; the best pair moves by theta.
    """
    check_norm("jsma", norm, eps, ("l0",))
    if not 0 < abs(theta) <= 1 or not 0 < gamma <= 1:
        raise UsageError(f"jsma needs theta in [-1, 1] but not 0 and gamma in (0, 1]; got {theta} and {gamma}")
    if scores not in ("prob", "logit") or targets < 1 or candidates < 2:
        told = f"scores {scores!r}, targets {targets}, candidates {candidates}"
        raise UsageError(f"jsma needs scores 'prob' or 'logit', targets from 1 and candidates from 2; got {told}")
    width = math.prod(x.shape[1:])
    most = min(width, math.floor(gamma * width + 1e-9 if eps is None else eps))
    if most < 2:
        told = f"gamma {gamma} of {width} entries" if eps is None else f"eps {eps}"
        raise UsageError(f"jsma changes entries in pairs and needs leave to change two; {told} allows {most}")
    crawl = _Crawl(target, aim("margin", criterion, targeted), theta, most, scores, candidates)
    with target.ready():
        return crawl.run(x, y) if targeted else _towards_likely(crawl, x, y, targets)


def _towards_likely(crawl: "_Crawl", x: Tensor, y: Tensor, targets: int) -> Tensor:
    """Rows that fail one class try the next, in the order of the clean scores."""
    with torch.no_grad():
        clean = crawl.target(x)
    order = clean.scatter(1, y[:, None], -torch.inf).argsort(dim=1, descending=True, stable=True)
    out, left = x.clone(), (~crawl.aim.hit(clean, y)).nonzero().squeeze(1)
    for place in range(min(targets, order.shape[1] - 1)):
        if not len(left):
            break
        made = crawl.run(x[left], y[left], order[left, place])
        out[left] = made
        left = left[(made == x[left]).flatten(1).all(1)]
    return out


@dataclass(frozen=True, slots=True)
class _Crawl:
    """One way to one class for each row: what stays the same over all steps."""

    target: Target
    aim: Aim
    theta: float
    most: int
    scores: str
    candidates: int

    def run(self, x: Tensor, y: Tensor, goal: Tensor | None = None) -> Tensor:
        """Adversarial inputs (N, *shape); rows that are not adversarial in the end come back as they were."""
        low, high = self.target.spec.bounds
        stride = self.theta * (high - low)
        rounds = self.most // 2 * math.ceil(1 / abs(self.theta))
        goal = y if goal is None else goal
        out, rows = x.clone(), torch.arange(len(x), device=x.device)
        clean = x.flatten(1)
        at = clean.clone()
        for step in range(rounds + 1):
            if not len(rows):
                break
            hit, rise, fall = self._slopes(at.view(-1, *x.shape[1:]), y, goal, step < rounds)
            used = at != clean
            room = (used.sum(1) + 2 <= self.most)[:, None]
            allowed = (at < high if self.theta > 0 else at > low) & (used | room)
            pair, found = self._pair(rise, fall, allowed)
            out[rows[hit]] = at[hit].view(-1, *x.shape[1:])
            moved = (at.gather(1, pair) + stride).clamp_(low, high)
            at.scatter_(1, pair, moved)
            on = (found & ~hit).nonzero().squeeze(1)
            if len(on) < len(rows):
                rows, y, goal, clean, at = (t[on] for t in (rows, y, goal, clean, at))
        return out

    def _pair(self, rise: Tensor, fall: Tensor | None, allowed: Tensor) -> tuple[Tensor, Tensor]:
        rise = rise if self.theta > 0 else -rise
        if fall is None:
            return top_pair(rise, allowed)
        return best_pair(rise, fall if self.theta > 0 else -fall, allowed, self.candidates)

    def _slopes(self, at: Tensor, y: Tensor, goal: Tensor, more: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        """Which rows are there (N,), and slopes (N, D) of the wanted class and, turned, of the others together.

        Where there is no step to come (``more``) the slopes are zero and cost nothing.
        """
        with torch.set_grad_enabled(more):
            at = at.detach().requires_grad_(more)
            outputs = self.target(at)
            hit = self.aim.hit(outputs.detach(), y)
            if not more:
                return hit, torch.zeros_like(at).flatten(1), None
            if self.scores == "prob":
                # The logarithm has the same order of slopes and does not underflow where the net is sure.
                wanted = outputs.log_softmax(1).gather(1, goal[:, None])
                return hit, back(wanted, at, torch.ones_like(wanted)).flatten(1), None
            wanted = outputs.gather(1, goal[:, None])
            rise = back(wanted, at, torch.ones_like(wanted), keep=True).flatten(1)
            every = back(outputs, at, torch.ones_like(outputs)).flatten(1)
        return hit, rise, rise - every
