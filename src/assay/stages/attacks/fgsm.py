"""The fast gradient sign method."""

from torch import Tensor

from assay.core.aims import Criterion
from assay.core.losses import Loss
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.stages.attacks.climb import Climb
from assay.subjects.target import Target


@register("attack", paper="Goodfellow, Shlens, Szegedy 2015", needs=("grad",), gradients=1)
def fgsm(
    target: Target,
    x: Tensor,
    y: Tensor,
    *,
    rng: Rows,
    eps: float,
    norm: str = "linf",
    random_start: bool = False,
    targeted: bool = False,
    early_stop: bool = True,
    loss: str | Loss = "ce",
    criterion: str | Criterion = "top",
) -> Tensor:
    """One step of length eps along the gradient.

    Formula: x' = clip(x + eps · s(∇L(x, y))), s the steepest direction of the norm: sign(g) for linf, g/‖g‖₂ for
    l2.
    """
    how = Climb(eps, norm, 1, 1.0, random_start, 1, 0.0, targeted, early_stop, loss, criterion)
    return how(target, x, y, rng)
