"""What several nets are made of."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay.core.errors import UsageError
from assay.core.specs import did_you_mean

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "elu": nn.ELU,
}


def activation_of(name: str) -> nn.Module:
    """The activation of that name."""
    if name not in ACTIVATIONS:
        raise UsageError(f"unknown activation {name!r}; {did_you_mean(name, ACTIVATIONS)}")
    return ACTIVATIONS[name]()


def image_shape(shape: tuple[int, ...], net: str) -> tuple[int, int, int]:
    """(channels, height, width), refused for other inputs."""
    if len(shape) != 3:
        raise UsageError(f"{net} takes images (channels, height, width), got shape {tuple(shape)}; try the model 'mlp'")
    return (int(shape[0]), int(shape[1]), int(shape[2]))


class PadTo(nn.Module):
    """Zeros around images smaller than ``side``, so that a net may pool as often as it does."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        down, across = (max(0, self.side - s) for s in x.shape[-2:])
        if not (down or across):
            return x
        return F.pad(x, (across // 2, across - across // 2, down // 2, down - down // 2))


def width_after(body: nn.Module, shape: tuple[int, ...]) -> int:
    """How many numbers ``body`` makes of one input."""
    body.eval()
    with torch.no_grad():
        n = int(body(torch.zeros(1, *shape)).numel())
    body.train()
    return n
