"""Any attack as a mutator."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.stages.attacks.untargeted import made_by, untargeted
from assay.subjects.bench import Bench


@register("mutator")
def attacked(
    bench: Bench,
    cases: Cases,
    *,
    rng: Rows,
    eps: float,
    norm: str = "linf",
    attack: str = "pgd(steps=10, early_stop=false)",
) -> Tensor:
    """What the attack makes of each case in the ball of radius eps around it.

    Formula: x' = attack(x, y) in the ball of eps.
    """
    search = untargeted(attack, bench.target, eps=eps, norm=norm, who="a mutator")

    def made(x: Tensor, y: Tensor, key: Tensor) -> Tensor:
        return made_by(search, bench.target, x, y, Rows(key))

    return bench.chunks.map(made, cases.x, cases.y, rng.key)
