"""How to train: what the user chooses, the optimiser that follows from it, and its learning rate at each moment."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Plan:
    """How to train.

    ``momentum`` is that of SGD, and the first beta of Adam; ``distil`` is the share of what the running average of the
    net answers in what it is to answer, beside the label (``Teacher``). With ``time`` above 0 it is for
    so many seconds, whatever ``epochs`` says.
    """

    epochs: int
    batch: int = 64
    lr: float = 1e-3
    optimiser: str = "adam"
    schedule: str = "cosine"
    momentum: float = 0.9
    weight_decay: float = 0.0
    smoothing: float = 0.0
    augment: str = ""
    ema: float = 0.0
    awp: float = 0.0
    time: float = 0.0
    distil: float = 0.0
    temperature: float = 1.0

    def check(self) -> None:
        if self.optimiser not in ("adam", "sgd"):
            raise UsageError(f"optimiser must be adam or sgd, got {self.optimiser!r}")
        if self.schedule not in ("cosine", "step", "constant"):
            raise UsageError(f"schedule must be cosine, step or constant, got {self.schedule!r}")
        for name, least in (("epochs", 1), ("batch", 1), ("weight_decay", 0), ("time", 0)):
            if not least <= getattr(self, name) < math.inf:
                raise UsageError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not 0 < self.lr <= 1e30 or not 0 <= self.momentum < 1:  # far above, the optimiser's own numbers overflow
            raise UsageError(f"lr must be in (0, 1e30] and momentum in [0, 1), got {self.lr} and {self.momentum}")
        if not 0 <= self.ema < 1 or not 0 <= self.smoothing < 1:
            raise UsageError(f"ema {self.ema} and smoothing {self.smoothing} must be in [0, 1)")
        if not 0 <= self.awp < 1:
            raise UsageError(f"awp is a share of each weight's length, 0.005 say; got {self.awp}")
        if not 0 <= self.distil < 1 or not 0 < self.temperature < math.inf:
            raise UsageError(
                f"distil must be in [0, 1) and temperature above 0, got {self.distil} and {self.temperature}"
            )
        if self.distil and not self.ema:
            raise UsageError("distil learns from the running average of the net, and there is none; give ema=0.999 too")


def optimiser_of(plan: Plan, net: nn.Module, fast: bool) -> torch.optim.Optimizer:
    """The optimiser; ``fast`` makes one whose step a CUDA graph can hold: fused, its learning rate on the device."""
    weights = [weight for weight in net.parameters() if weight.requires_grad]
    lr: float | Tensor = torch.tensor(plan.lr, device=weights[0].device) if fast else plan.lr
    fused = fast or None
    momentum, decay = plan.momentum, plan.weight_decay
    if plan.optimiser == "sgd":
        return torch.optim.SGD(weights, lr, momentum, weight_decay=decay, nesterov=momentum > 0, fused=fused)
    return torch.optim.Adam(weights, lr, (momentum, 0.999), weight_decay=decay, fused=fused, capturable=fast)


def kept_share(ema: float, step: int) -> float:
    """The share of a running average that stays at a step: ``ema`` once it has seen enough, less before.

    The average begins as the net that is to be trained; at 0.999 from the start, a third of it would still be that
    after a thousand steps.

    >>> [round(kept_share(0.999, step), 3) for step in (0, 10, 100_000)]
    [0.1, 0.55, 0.999]
    """
    return min(ema, (1 + step) / (10 + step))


def rate_at(schedule: str, progress: float) -> float:
    """The learning rate as a share of the first one, ``progress`` from 0 to 1."""
    if schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * progress))
    if schedule == "step":
        return 1.0 if progress < 0.5 else 0.1 if progress < 0.75 else 0.01
    return 1.0
