"""Versions of a linear net that are known in closed form: which inputs each gets right, and at which eps no more."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

NET = """
import torch
from torch import nn

class Told(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        score = (x.flatten(1)[:, :2] - 0.5) @ self.w
        return torch.stack([-score, score], 1)

def net():
    return Told()
"""
FIRST = 8.0  # the weight of the first pixel, which tells the class; that of the second misleads
SECOND = {"old": 0.0, "new": 5.0, "bad": 12.0}
OLD, NEW, BAD = (f"gate.py:net@{name}.safetensors" for name in SECOND)
DATA = "gate.npz"


def inputs(n: int = 200) -> tuple[Tensor, Tensor]:
    """Inputs of four pixels, half of each class; none is so near to the bounds that a ball of 0.1 is cut off."""
    y = torch.arange(n) % 2
    steps = torch.arange(n) / n
    x = torch.full((n, 1, 2, 2), 0.5)
    x[:, 0, 0, 0] = 0.5 + (0.15 + 0.1 * (steps * 7 % 1)) * (2 * y - 1)
    x[:, 0, 0, 1] = 0.1 + 0.8 * (steps * 13 % 1)
    return x, y


def right(version: str, eps: float = 0.0, n: int = 200) -> Tensor:
    """Which inputs that version gets right, however they change by at most ``eps`` in linf."""
    x, y = inputs(n)
    score = FIRST * (x[:, 0, 0, 0] - 0.5) + SECOND[version] * (x[:, 0, 0, 1] - 0.5)
    return (2 * y - 1) * score - (FIRST + SECOND[version]) * eps > 0


def prepare(folder: Path, n: int = 200, names: Sequence[str] = ("dark", "light")) -> None:
    """The nets and the data as files: ``OLD``, ``NEW``, ``BAD`` and ``DATA`` name them."""
    x, y = inputs(n)
    for name, second in SECOND.items():
        save_file({"w": torch.tensor([FIRST, second])}, folder / f"{name}.safetensors")
    (folder / "gate.py").write_text(NET)
    np.savez(folder / DATA, x=x.numpy(), y=y.numpy(), classes=np.array(names))


def live(version: str) -> nn.Module:
    """The same net as a module."""

    class Told(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.tensor([FIRST, SECOND[version]]))

        def forward(self, x: Tensor) -> Tensor:
            score = (x.flatten(1)[:, :2] - 0.5) @ self.w
            return torch.stack([-score, score], 1)

    return Told()
