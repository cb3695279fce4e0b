"""A net that says whether the mean of its input is above a level, and inputs on both sides of one half."""

import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.subjects.bench import Data


class Threshold(nn.Module):
    """The second class above ``level``."""

    def __init__(self, level: float = 0.5) -> None:
        super().__init__()
        self.level = nn.Parameter(torch.tensor(level))

    def forward(self, x: Tensor) -> Tensor:
        above = x.mean(1, keepdim=True) - self.level
        return torch.cat([-above, above], 1)


def line(n: int = 60, width: int = 2) -> Data:
    """From 0.3 to 0.7, each number ``width`` times."""
    x = torch.linspace(0.3, 0.7, n)[:, None].repeat(1, width)
    return Data("line", Cases.of(x, (x.mean(1) > 0.5).long()), InputSpec((width,), (0.0, 1.0), ("low", "high")))
