"""Projected gradient descent."""

from torch import Tensor

from assay.core.aims import Criterion
from assay.core.losses import Loss
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.stages.attacks.climb import Climb
from assay.subjects.target import Target


@register("attack", paper="Madry et al. 2018", needs=("grad",))
def pgd(
    target: Target,
    x: Tensor,
    y: Tensor,
    *,
    rng: Rows,
    eps: float,
    norm: str = "linf",
    steps: int = 40,
    step: float = 0.1,
    random_start: bool = True,
    restarts: int = 1,
    targeted: bool = False,
    early_stop: bool = True,
    loss: str | Loss = "ce",
    criterion: str | Criterion = "top",
    converged: float = 0.0,
    falling: bool = False,
) -> Tensor:
    """Gradient steps from a random point of the ball, with restarts; ``step`` is a share of eps.

    With ``converged`` a row also stops where its first-order loss (``fol``) is no more than that. Steps that are
    ``falling`` begin with ``step``, 1 say, and fall evenly (step · (1 − t/steps)): as few may find more so.

    Formula: x₀ uniform in the ball, xₜ₊₁ = Π(xₜ + step·eps · s(∇L(xₜ, y))), Π the projection on ball and bounds.
    """
    how = Climb(
        eps, norm, steps, step, random_start, restarts, 0.0, targeted, early_stop, loss, criterion, converged, falling
    )
    return how(target, x, y, rng)
