"""A planted weakness for tests of hardening: data that pull a net right, a net that looks at the wrong thing."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from assay.core.cases import Cases, InputSpec
from assay.engines.hardened import Hardened
from assay.subjects.bench import Data, Splits


def planted(strong: float = 0.3) -> Splits:
    """Two classes told apart by ``strong`` in the first number and by a hair in the second."""

    def part(name: str, n: int, first: int) -> Data:
        y = torch.arange(first, first + n) % 2
        sign = 2.0 * y - 1
        jitter = torch.linspace(-0.02, 0.02, n)
        x = torch.stack([0.5 + strong * sign + jitter * bool(strong), 0.5 + 0.03 * sign], 1)
        return Data(f"planted/{name}", Cases.of(x, y), InputSpec((2,), (0.0, 1.0), ("a", "b")))

    return Splits("planted", part("train", 120, 0), part("val", 64, 1), part("test", 72, 0))


def hairsplitter() -> nn.Module:
    """Looks at the second number alone: right on every clean input, wrong after the smallest push."""
    net = nn.Linear(2, 2)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[0.0, -10.0], [0.0, 10.0]]))
        net.bias.copy_(torch.tensor([5.0, -5.0]))
    return net


def numbers(told: Hardened) -> dict[str, Any]:
    """The result without what depends on the clock and the place, and the passes, some of which a kill makes twice."""
    told_json = told.to_json()
    for done in told_json["rounds"]:
        del done["seconds"], done["training_seconds"], done["measuring_seconds"]
    return {k: v for k, v in told_json.items() if k not in ("seconds", "passes", "run", "model")}


class Killed:
    """Stops the work as a kill would, the second time it hears from a phase (of that round, where one is named)."""

    def __init__(self, phase: str, number: int | None = None) -> None:
        self.phase, self.number, self.heard = phase, number, 0

    def __call__(self, told: Mapping[str, Any]) -> None:
        if told["phase"] == self.phase and self.number in (None, told.get("round", self.number)):
            self.heard += 1
            if self.heard == 2:
                raise KeyboardInterrupt
