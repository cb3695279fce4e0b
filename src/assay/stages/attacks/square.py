"""Square attack: random search over square windows, by the target's scores alone."""

import math

import torch
from torch import Tensor

from assay.core.aims import Aim, Criterion, aim
from assay.core.errors import UsageError
from assay.core.losses import Loss
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.stages.attacks.minimal import check_norm
from assay.stages.attacks.squares import Bumps, Corners, Grid, Proposals, image_of, share_at
from assay.subjects.target import Target

BLOCK = 64  # steps whose random numbers are drawn at once
LOOKS = 16  # steps between two looks for rows that are done, on a GPU: each look waits for it


@register("attack", paper="Andriushchenko et al. 2020", needs=("prob",))
def square(
    target: Target,
    x: Tensor,
    y: Tensor,
    *,
    rng: Rows,
    eps: float,
    norm: str = "linf",
    queries: int = 5000,
    p_init: float = 0.8,
    rescale: bool = True,
    restarts: int = 1,
    targeted: bool = False,
    loss: str | Loss = "margin",
    criterion: str | Criterion = "top",
) -> Tensor:
    """Random search that rewrites one square window at a time, without gradients; linf and l2.

    A row is asked ``queries`` times in each restart, its starting point included, and no more once it is adversarial
    (a net on a GPU a few times more, for nothing); a proposal is kept when the loss grows. Rows that are never
    adversarial come back as their best point.

    The schedule: a window covers the share p of the image. p begins at ``p_init`` and is halved when the step has
    passed 10, 50, 200, 500, 1000, 2000, 4000, 6000 and 8000. With ``rescale`` these are counted in ten thousandths of
    ``queries``, without in steps (as the paper does for a budget of 10 000, and AutoAttack for its 5000).

    Inputs are images (…, rows, columns), all axes before being channels; a vector is an image of one row.

    Formula: x' = x with eps·(±1) in each channel of a window of side √(p·h·w); kept where L(x') > L(x), L the
    margin. In l2 the window holds bumps whose mass is taken from another window.
    """
    checked = check_norm("square", norm, eps, ("linf", "l2"))
    if queries < 1 or restarts < 1 or not 0 < p_init <= 1:
        told = f"queries {queries}, restarts {restarts}, p_init {p_init}"
        raise UsageError(f"square needs queries and restarts above 0 and p_init in (0, 1]; got {told}")
    channels, rows, columns = image_of(tuple(x.shape[1:]))
    kind = Corners if checked == "linf" else Bumps
    proposals = kind(channels, Grid(rows, columns, x.device), eps, target.spec.bounds, x.dtype)
    shares = [share_at(step, queries, p_init, rescale) for step in range(queries - 1)]
    search = _Search(target, aim(loss, criterion, targeted), proposals, shares)
    with target.ready(), torch.no_grad():
        made, gain, hit = search.run(x, y, rng.at(0))
        for restart in range(1, restarts):
            left = (~hit).nonzero().squeeze(1)
            if not len(left):
                break
            again, reached, fooled = search.run(x[left], y[left], rng[left].at(restart))
            better = fooled | (reached > gain[left])
            won = left[better]
            made[won], gain[won], hit[won] = again[better], reached[better], fooled[better]
    return made


def _looks(x: Tensor, target: Target) -> int:
    """Steps between two looks; who is asked elsewhere is not asked for nothing."""
    return LOOKS if x.is_cuda and "grad" in target.gives else 1


class _Search:
    """One random search: what stays the same over all its steps."""

    def __init__(self, target: Target, aim: Aim, proposals: Proposals, shares: list[float]) -> None:
        self.target, self.aim, self.proposals, self.shares = target, aim, proposals, shares

    def run(self, x: Tensor, y: Tensor, rng: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """The best points (N, *shape), their gain (N,) and which are adversarial (N,)."""
        shape = x.shape[1:]
        channels, *sides = image_of(tuple(shape))
        clean = x.reshape(len(x), channels, math.prod(sides))
        at = self.proposals.start(clean, rng.at(0))
        best, hit = self._judge(at.view(-1, *shape), y)
        out, gains, hits = at.clone(), best.clone(), hit.clone()
        rows = torch.arange(len(x), device=x.device)
        plan: list[Tensor] = []
        looks = _looks(x, self.target)
        for step, share in enumerate(self.shares):
            if step % looks == 0 and hit.any():
                out[rows], gains[rows], hits[rows] = at, best, hit
                on = (~hit).nonzero().squeeze(1)
                rows, y, clean, at, best, hit, *plan = (t[on] for t in (rows, y, clean, at, best, hit, *plan))
                rng = rng[on]
            if not len(rows):
                break
            if step % BLOCK == 0:
                ahead = self.shares[step : step + BLOCK]
                numbers = rng.at(1 + step // BLOCK).uniform((len(ahead), self.proposals.numbers))
                plan = self.proposals.plan(ahead, numbers)
            window = [part[:, step % BLOCK] for part in plan]
            cells, before, after = self.proposals.write(at, clean, share, window)
            gain, now = self._judge(at.view(-1, *shape), y)
            take = (now | (gain > best)) & ~hit  # a row that is done stays where it is until it is let go
            best, hit = torch.where(take, gain, best), hit | now
            at.scatter_(2, cells, torch.where(take[:, None, None], after, before))
        out[rows], gains[rows], hits[rows] = at, best, hit
        return out.view(-1, *shape), gains, hits

    def _judge(self, points: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        outputs = self.target(points)
        return self.aim.gain(outputs, y), self.aim.hit(outputs, y)
