"""The other models of a campaign: what they answer."""

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.subjects.bench import Bench
from assay.subjects.target import answer


def others(bench: Bench, cases: Cases) -> Tensor:
    """The scores of all models but the target, (N, models, K): the column ``others`` where it is filled, else asked."""
    if "others" in cases.info and cases.info["others"].shape[1]:
        return cases.info["others"]
    siblings = [model for role, model in bench.roles.items() if role.startswith("sibling")]
    if not siblings:
        raise UsageError("models are compared here, and there is none beside the target; give one: --with MODEL")
    return torch.stack([answer(model, cases.x, bench.chunks) for model in siblings], 1)
