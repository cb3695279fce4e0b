"""An attack as a part of another stage: named in its parameters, and moving away from the label."""

import torch
from torch import Tensor

from assay.core.cases import check_made
from assay.core.errors import UsageError
from assay.core.randomness import Rows
from assay.core.registry import Bound, bind
from assay.core.specs import step
from assay.subjects.target import Target, require


def untargeted(attack: str, target: Target, *, eps: float, norm: str, who: str) -> Bound:
    """The attack of that text with its ball; refused where ``who`` cannot use it on this target."""
    name, params = step(attack)
    search = bind("attack", name, params, {"eps": eps, "norm": norm})
    if search.params.get("targeted"):
        raise UsageError(f"{attack} is targeted, and {who} has no classes to aim at; leave targeted out")
    require(target, search.entry.needs, f"attack {name!r}")
    return search


def made_by(search: Bound, target: Target, x: Tensor, y: Tensor, rng: Rows) -> Tensor:
    """What the attack makes of inputs, without a graph, (N, *shape)."""
    with torch.enable_grad():
        made = search(target, x, y, rng=rng)
    return check_made(made, x, f"attack {search.entry.name!r}")
