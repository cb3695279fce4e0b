"""A black box with a known rule, which remembers what it was asked."""

from contextlib import nullcontext

import torch
from torch import Tensor

from assay.core.cases import InputSpec
from assay.core.ids import input_ids
from assay.subjects.target import Need

SPEC = InputSpec((6,), (0.0, 1.0), ("a", "b", "c"))


def scores_of(x: Tensor) -> Tensor:
    """The class is the largest of three pairs of inputs."""
    return 8 * (x[:, :3] + x[:, 3:])


def drawn(n: int, seed: int) -> Tensor:
    """Inputs for it, (n, 6)."""
    return torch.rand(n, 6, generator=torch.Generator().manual_seed(seed))


class Rule:
    """The rule as a target that gives labels and probabilities."""

    spec, device = SPEC, torch.device("cpu")
    gives: frozenset[Need] = frozenset({"label", "prob"})

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, x: Tensor) -> Tensor:
        self.asked += input_ids(x)
        return scores_of(x)

    def ready(self) -> nullcontext[None]:
        return nullcontext()

    def fingerprint(self) -> str:
        return "rule"
