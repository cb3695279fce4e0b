"""Auto-PGD on the targeted difference of logits ratio, one wrong class after another."""

import torch
from torch import Tensor

from assay.core.aims import Aim, Criterion, aim
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.losses import dlr_towards
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.stages.attacks.auto_pgd import AutoPGD
from assay.stages.attacks.rivals import at_once, full, repeated, rivals_of
from assay.subjects.target import Target, answer


@register("attack", paper="Croce and Hein 2020", needs=("grad",))
def apgd_t(
    target: Target,
    x: Tensor,
    y: Tensor,
    *,
    rng: Rows,
    eps: float,
    norm: str = "linf",
    steps: int = 100,
    restarts: int = 1,
    targets: int = 9,
    eot: int = 1,
    early_stop: bool = True,
    criterion: str | Criterion = "top",
) -> Tensor:
    """Auto-PGD towards each of the ``targets`` likeliest wrong classes in turn; any wrong answer counts.

    Formula: L = (z_t − z_y) / (z_π1 − (z_π3 + z_π4)/2) for each wrong class t in turn; the search is that of
    apgd_ce.
    """
    if targets < 1:
        raise UsageError(f"apgd_t needs at least one target, got {targets}")
    with target.ready():
        rivals = rivals_of(target, x, y, targets)
        fooled = aim("ce", criterion)
        how = AutoPGD(eps, norm, steps, restarts, early_stop, eot, _towards(fooled.criterion))
        chunks = Chunks(max(len(x), full(x.device)))

        def work(x: Tensor, pair: Tensor, key: Tensor) -> Tensor:
            return how(target, x, pair, Rows(key))

        best, left, place = x.clone(), torch.arange(len(x), device=x.device), 0
        while place < rivals.shape[1] and (len(left) or not place):
            turn = at_once(place, rivals.shape[1], len(left), full(x.device))
            many = left.repeat(len(turn))
            pair = torch.stack((y[many], rivals[left][:, turn.start : turn.stop].T.flatten()), 1)
            made = chunks.map(work, x[many], pair, repeated(rng[left], turn).key)
            hit = fooled.hit(answer(target, made, chunks), y[many]).view(len(turn), -1)
            # As if they had been tried in turn: the first that fools, else the last.
            won = torch.where(hit.any(0), hit.int().argmax(0), len(turn) - 1)
            best[left] = made.view(len(turn), len(left), *x.shape[1:])[won, torch.arange(len(left), device=x.device)]
            left, place = left[~hit.any(0)], turn.stop
    return best


def _towards(criterion: Criterion) -> Aim:
    """An aim whose reference is a pair: the label to leave, and the class to climb towards."""
    return Aim(
        lambda outputs, pair: dlr_towards(outputs, pair[:, 0], pair[:, 1]),
        lambda outputs, pair: criterion(outputs, pair[:, 0]),
    )
