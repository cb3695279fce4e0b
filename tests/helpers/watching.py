"""Who looks on at a training in a test."""

import copy
from collections.abc import Mapping
from typing import Any

from torch import nn

from assay.stages.trainers.watch import State, Unwatched


class StateKeeper(Unwatched):
    """Keeps every state and note and how far each batch was, and goes on from ``start``."""

    def __init__(self, start: State | None = None) -> None:
        self.start = start
        self.states: list[State] = []
        self.notes: dict[str, Any] = {}
        self.heard: list[float] = []

    def resume(self) -> State | None:
        return self.start

    def batch(self, epoch: int, done: float) -> None:
        self.heard.append(epoch + done)

    def epoch(self, state: State, net: nn.Module) -> None:
        self.states.append(copy.deepcopy(state))  # as a file would hold it

    def note(self, facts: Mapping[str, Any]) -> None:
        self.notes |= facts
