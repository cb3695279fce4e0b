"""Any attack as a mutator."""

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.randomness import Rows
from assay.core.registry import bind, register
from assay.core.specs import step
from assay.subjects.bench import Bench
from assay.subjects.target import require


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
    """What the attack makes of each case in the ball of radius eps around it."""
    name, params = step(attack)
    search = bind("attack", name, params, {"eps": eps, "norm": norm})
    if search.params.get("targeted"):
        raise UsageError(f"{attack} is targeted, and a mutator has no classes to aim at; leave targeted out")
    require(bench.target, search.entry.needs, f"attack {name!r}")

    def made(x: Tensor, y: Tensor, key: Tensor) -> Tensor:
        with torch.enable_grad():
            out: Tensor = search(bench.target, x, y, rng=Rows(key))
        return out.detach()

    return bench.chunks.map(made, cases.x, cases.y, rng.key)
