"""Data on which a net that withstands attacks leans on other numbers than one that does not."""

import torch
from torch import nn

from assay.core.cases import Cases, InputSpec
from assay.subjects.bench import Data, Splits

SPEC = InputSpec((9,), (0.0, 1.0), ("left", "right"))


def net(seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, 2))


def cases(n: int = 400, seed: int = 0) -> Cases:
    """The first number says the class far from the middle, and is wrong one time in five; eight others are always right
    together, and so near the middle that a small attack turns them round."""
    rng = torch.Generator().manual_seed(seed)
    y = (torch.arange(n) % 2).long()
    side = 2.0 * y - 1
    first = 0.5 + 0.3 * side * torch.where(torch.rand(n, generator=rng) < 0.2, -1.0, 1.0)
    others = 0.5 + 0.05 * side[:, None] + 0.03 * torch.randn(n, 8, generator=rng)
    return Cases.of(torch.cat([first[:, None], others], 1).clamp(0, 1), y)


def splits() -> Splits:
    return Splits("sides", Data("train", cases(), SPEC), Data("val", cases(200, 1), SPEC))
