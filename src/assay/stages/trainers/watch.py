"""What a training is at between two epochs, and who looks on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn


@dataclass(slots=True)
class State:
    """Everything that one more epoch depends on, and the best weights so far.

    ``log`` may begin with the epochs of other trials; ``epoch`` counts those of this one. ``memory`` is what a trainer
    keeps from epoch to epoch (``Task.begin``).
    """

    epoch: int
    weights: dict[str, Tensor]
    optimiser: dict[str, Any]
    average: dict[str, Tensor]
    best: dict[str, Tensor]
    log: list[dict[str, float]] = field(default_factory=list)
    memory: dict[str, Tensor] = field(default_factory=dict)


class Watch(Protocol):
    """Who looks on: keeps the state, the history, a progress bar."""

    def resume(self) -> State | None: ...

    def batch(self, epoch: int, done: float) -> None: ...

    def epoch(self, state: State, net: nn.Module) -> None: ...

    def note(self, facts: Mapping[str, Any]) -> None:
        """What a trainer has to say of its work besides its epochs; JSON values."""
        ...


class Unwatched:
    """Nobody looks on."""

    def resume(self) -> State | None:
        return None

    def batch(self, epoch: int, done: float) -> None: ...

    def epoch(self, state: State, net: nn.Module) -> None: ...

    def note(self, facts: Mapping[str, Any]) -> None: ...
