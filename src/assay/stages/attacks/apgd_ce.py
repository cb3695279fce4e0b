"""Auto-PGD on cross-entropy."""

from torch import Tensor

from assay.core.aims import Criterion, aim
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.stages.attacks.auto_pgd import AutoPGD
from assay.subjects.target import Target


@register("attack", paper="Croce and Hein 2020", needs=("grad",))
def apgd_ce(
    target: Target,
    x: Tensor,
    y: Tensor,
    *,
    rng: Rows,
    eps: float,
    norm: str = "linf",
    steps: int = 100,
    restarts: int = 1,
    eot: int = 1,
    targeted: bool = False,
    early_stop: bool = True,
    criterion: str | Criterion = "top",
) -> Tensor:
    """Auto-PGD on cross-entropy; ``eot`` averages so many gradients of a randomised target.

    Formula: z = Π(xₜ + ηₜ·s(∇L(xₜ))), xₜ₊₁ = Π(xₜ + 0.75·(z − xₜ) + 0.25·(xₜ − xₜ₋₁)); η starts at 2·eps and is
    halved at checkpoints where fewer than 75 % of the steps gained, or where neither η nor the best loss changed
    since the last one, and the row goes back to its best point.
    """
    how = AutoPGD(eps, norm, steps, restarts, early_stop, eot, aim("ce", criterion, targeted))
    return how(target, x, y, rng)
