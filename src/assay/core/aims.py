"""What an attack is after: a loss to climb, and the criterion by which an answer is still right."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from assay.core.errors import UsageError
from assay.core.losses import LOSSES, Loss
from assay.core.specs import did_you_mean, python_file, step
from assay.core.userfile import load_object

Criterion = Callable[[Tensor, Tensor], Tensor]
Rule = Callable[[Tensor, Tensor], Tensor]


def top(logits: Tensor, y: Tensor, *, k: int = 1) -> Tensor:
    """Right where the label is among the ``k`` highest scores, (N,)."""
    if k == 1:
        return logits.argmax(1) == y
    return (logits.topk(k, 1).indices == y[:, None]).any(1)


def every_label(logits: Tensor, y: Tensor, *, threshold: float = 0.0) -> Tensor:
    """Right where every one of several labels (N, K) is on the right side of the threshold, (N,)."""
    return ((logits > threshold) == (y > 0.5)).flatten(1).all(1)


def within(outputs: Tensor, y: Tensor, *, tolerance: float = 0.1) -> Tensor:
    """Right where no output of a regression is further than ``tolerance`` from its reference, (N,)."""
    return (outputs - y.to(outputs.dtype).view_as(outputs)).abs().flatten(1).amax(1) <= tolerance


def alike(logits: Tensor, other: Tensor) -> Tensor:
    """Right where the class is that of the other scores (N, K), (N,)."""
    return logits.argmax(1) == other.argmax(1)


CRITERIA: dict[str, Criterion] = {"top": top, "every_label": every_label, "within": within}


@dataclass(frozen=True, slots=True)
class Aim:
    """``gain`` grows towards the aim, ``hit`` tells who has reached it.

    Untargeted, ``y`` is what the answer should be and the aim is an answer that is not right. Targeted, ``y`` is what
    the attacker wants and the aim is an answer that is right by it.
    """

    loss: Loss
    criterion: Criterion
    targeted: bool = False

    def gain(self, outputs: Tensor, y: Tensor) -> Tensor:
        """What the attack climbs, (N,)."""
        value = self.loss(outputs, y)
        return -value if self.targeted else value

    def hit(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Which rows are there, (N,)."""
        right = self.criterion(outputs, y)
        return right if self.targeted else ~right


def aim(loss: str | Loss = "ce", criterion: str | Criterion = "top", targeted: bool = False) -> Aim:
    """The aim of these names; ``top(k=5)``, ``file.py:function`` and functions themselves are names too.

    >>> import torch
    >>> aim("margin", "top(k=2)").hit(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([1]))
    tensor([False])
    """
    return Aim(_found(loss, LOSSES, "loss"), _found(criterion, CRITERIA, "criterion"), targeted)


def _found(rule: str | Rule, known: Mapping[str, Rule], what: str) -> Rule:
    if not isinstance(rule, str):
        return rule
    name, params = step(rule)
    place = python_file(name)
    if place is None and name not in known:
        raise UsageError(f"unknown {what} {name!r}; {did_you_mean(name, known)}")
    function: Any = known[name] if place is None else load_object(*place)
    if not callable(function):
        raise UsageError(f"{name} is not a function")
    return partial(function, **params) if params else function
