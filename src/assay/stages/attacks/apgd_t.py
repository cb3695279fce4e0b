"""Auto-PGD on the targeted difference of logits ratio, one wrong class after another."""

import torch
from torch import Tensor

from assay.core.aims import Aim, Criterion, aim
from assay.core.errors import UsageError
from assay.core.losses import dlr_towards
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.stages.attacks.auto_pgd import AutoPGD
from assay.subjects.target import Target


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
    """Auto-PGD towards each of the ``targets`` likeliest wrong classes in turn; any wrong answer counts."""
    if targets < 1:
        raise UsageError(f"apgd_t needs at least one target, got {targets}")
    with target.ready():
        rivals = rivals_of(target, x, y, targets)
        fooled = aim("ce", criterion)
        best = x.clone()
        left = torch.arange(len(x), device=x.device)
        for place in range(rivals.shape[1]):
            how = AutoPGD(eps, norm, steps, restarts, early_stop, eot, _towards(fooled.criterion))
            pair = torch.stack((y[left], rivals[left, place]), 1)
            best[left] = how(target, x[left], pair, rng[left].at(place))
            with torch.no_grad():
                left = left[~fooled.hit(target(best[left]), y[left])]
            if not len(left):
                break
    return best


def rivals_of(target: Target, x: Tensor, y: Tensor, count: int) -> Tensor:
    """The ``count`` classes other than ``y`` with the highest scores, best first, (N, ≤ count)."""
    with torch.no_grad():
        scores = target(x).scatter(1, y[:, None], -torch.inf)
    return scores.topk(min(count, scores.shape[1] - 1), 1).indices


def _towards(criterion: Criterion) -> Aim:
    """An aim whose reference is a pair: the label to leave, and the class to climb towards."""
    return Aim(
        lambda outputs, pair: dlr_towards(outputs, pair[:, 0], pair[:, 1]),
        lambda outputs, pair: criterion(outputs, pair[:, 0]),
    )
