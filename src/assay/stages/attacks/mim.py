"""The momentum iterative method."""

from torch import Tensor

from assay.core.aims import Criterion
from assay.core.losses import Loss
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.stages.attacks.climb import Climb
from assay.subjects.target import Target


@register("attack", paper="Dong et al. 2018", needs=("grad",))
def mim(
    target: Target,
    x: Tensor,
    y: Tensor,
    *,
    rng: Rows,
    eps: float,
    norm: str = "linf",
    steps: int = 20,
    step: float = 0.1,
    decay: float = 1.0,
    targeted: bool = False,
    early_stop: bool = True,
    loss: str | Loss = "ce",
    criterion: str | Criterion = "top",
) -> Tensor:
    """Gradient steps with momentum, each gradient scaled by its mean absolute value; ``step`` is a share of eps.

    Formula: vₜ₊₁ = decay·vₜ + g/mean|g| with g = ∇L(xₜ, y), xₜ₊₁ = Π(xₜ + step·eps · s(vₜ₊₁)).
    """
    how = Climb(eps, norm, steps, step, False, 1, decay, targeted, early_stop, loss, criterion)
    return how(target, x, y, rng)
