"""What the passes of shrinking share: the inputs they work on, questions that are counted, and what they made."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

Ask = Callable[[Tensor, Tensor], Tensor]  # (rows, inputs) -> (M,) above 0: does each row, with that input, still fail?

BYTES = {"cpu": 1 << 26, "cuda": 1 << 30}  # of the inputs asked about together
LEAST = 64  # inputs asked about together, however large they are


class Outcome(NamedTuple):
    """What a pass made of inputs, (N, *shape), and how that came about, (N,) each; see ``ddmin.Reduced``."""

    x: Tensor
    failing: Tensor
    minimal: Tensor
    asked: Tensor


@dataclass(frozen=True, slots=True)
class Task:
    """Inputs to make smaller, (N, *shape), their seeds, and the inputs as they came, before any pass.

    ``budget`` is how many questions each has left, (N,); ``nearly`` says that hardly anything can be taken back.
    """

    x: Tensor
    seeds: Tensor
    came: Tensor
    ask: Ask
    budget: Tensor | None = None
    bounds: tuple[float, float] = (0.0, 1.0)
    nearly: bool = False

    @property
    def limit(self) -> int:
        """How many inputs are asked about together."""
        return max(LEAST, BYTES.get(self.x.device.type, BYTES["cpu"]) // max(self.x[:1].nbytes, 1))


class Questions:
    """Questions about the inputs of a task, counted; who has none left gets the answer that it does not fail."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.asked = torch.zeros(len(task.x), dtype=torch.int64, device=task.x.device)

    def fail(self, rows: Tensor, x: Tensor) -> Tensor:
        """Which of ``rows`` fail with these inputs, (M,)."""
        budget = self.task.budget
        may = torch.ones_like(rows, dtype=torch.bool) if budget is None else self.asked[rows] < budget[rows]
        told = torch.zeros_like(may)
        for part in may.nonzero().squeeze(1).split(self.task.limit):
            told[part] = self.task.ask(rows[part], x[part]) > 0  # NaN is no failure
        self.asked[rows[may]] += 1
        return told
