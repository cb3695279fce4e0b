"""The basic iterative method."""

from torch import Tensor

from assay.core.aims import Criterion
from assay.core.losses import Loss
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.stages.attacks.climb import Climb
from assay.subjects.target import Target


@register("attack", paper="Kurakin, Goodfellow, Bengio 2017", needs=("grad",))
def bim(
    target: Target,
    x: Tensor,
    y: Tensor,
    *,
    rng: Rows,
    eps: float,
    norm: str = "linf",
    steps: int = 20,
    step: float = 0.1,
    targeted: bool = False,
    early_stop: bool = True,
    loss: str | Loss = "ce",
    criterion: str | Criterion = "top",
) -> Tensor:
    """Repeated gradient steps from the input itself; ``step`` is a share of eps.

    Formula: x₀ = x, xₜ₊₁ = Π(xₜ + step·eps · s(∇L(xₜ, y))), Π the projection on ball and bounds, s as of fgsm.
    """
    how = Climb(eps, norm, steps, step, False, 1, 0.0, targeted, early_stop, loss, criterion)
    return how(target, x, y, rng)
