"""Auto-PGD on the difference of logits ratio."""

from torch import Tensor

from assay.core.aims import Criterion, aim
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.stages.attacks.auto_pgd import AutoPGD
from assay.subjects.target import Target


@register("attack", paper="Croce and Hein 2020", needs=("grad",))
def apgd_dlr(
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
    """Auto-PGD on the difference of logits ratio, which no scale of the logits can mask.

    Formula: L = (max_{i≠y} zᵢ − z_y) / (z_π1 − z_π3), z the logits, π their order; the search is that of apgd_ce.
    """
    how = AutoPGD(eps, norm, steps, restarts, early_stop, eot, aim("dlr", criterion, targeted))
    return how(target, x, y, rng)
