"""Neurons near the threshold of being active."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.randomness import Rows, Stream
from assay.core.registry import register
from assay.stages.coverage import Coverage
from assay.stages.coverage.nc import scaled_values
from assay.stages.strategies import Push
from assay.stages.strategies.drawing import check_k, draw, joined
from assay.subjects.observer import Observer, Seen


@register("strategy", paper="DLFuzz 2018", needs=("activation",))
def near(*, k: int = 5, threshold: float = 0.5, above: float = 0.25, below: float = 0.2) -> "Near":
    """Half of k neurons just above the threshold, pushed up, and half just below, pushed down (strategy 3 of DLFuzz).

    They are drawn from those whose scaled value lies within ``above`` over and within ``below`` under it.
    """
    if above <= 0 or below <= 0:
        raise UsageError(f"near: above and below must be above 0, got {above} and {below}")
    if not 0 <= threshold < 1:
        raise UsageError(f"near: threshold is of values scaled to 0..1, so from 0 up and below 1; got {threshold}")
    return Near(k, threshold, above, below)


@dataclass(slots=True)
class Near:
    k: int
    threshold: float
    above: float
    below: float
    ends: bool = True

    def begin(self, observer: Observer, rng: Stream) -> "Nearing":
        return Nearing(self, observer)


class Nearing:
    """The strategy at work; it remembers nothing."""

    def __init__(self, strategy: Near, observer: Observer) -> None:
        check_k(strategy.k, observer.neurons)
        self.strategy, self.k = strategy, strategy.k
        widths = torch.tensor([layer.width for layer in observer.each])
        self._layer = torch.arange(len(widths)).repeat_interleave(widths).to(observer.targets[0].device)

    def start(self, lanes: Cases) -> Cases:
        return lanes

    def choose(self, lanes: Cases, seen: Seen, coverage: Coverage, rng: Rows) -> Push:
        over = scaled_values(seen, self._layer) - self.strategy.threshold
        half = self.k // 2
        # Code: the first it meets, and only in layers before the dense ones. Here: drawn from all layers, because the
        # paper says nothing of an order.
        up = draw(((over > 0) & (over < self.strategy.above)).float(), half, rng.at(0))
        down = draw(((over < 0) & (over > -self.strategy.below)).float(), self.k - half, rng.at(1))
        return joined([up, Push(down.neurons, -down.signs)])

    def learn(self, lanes: Cases, seen: Seen, failing: Tensor, counted: Tensor) -> Cases:
        return lanes

    def end(self, lanes: Cases) -> None:
        return

    def state(self) -> dict[str, Tensor]:
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        return

    def news(self) -> dict[str, Tensor]:
        return {}

    def merge(self, news: Mapping[str, Tensor]) -> None:
        return
