"""Strategies that draw neurons, each with a weight of its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.randomness import Rows, Stream
from assay.stages.coverage import Coverage
from assay.stages.strategies import Push
from assay.stages.strategies.activity import SEED_COVERED, active, looked_at
from assay.subjects.observer import Observer, Seen


@dataclass(slots=True)
class Known:
    """What neurons are weighed by: the cases they are weighed for, and how often each neuron was active."""

    lanes: Cases
    seen: Seen
    coverage: Coverage
    counts: Tensor


Weigh = Callable[[Known], Tensor]  # the weight of each neuron, (W,) or (N, W); 0: it is never drawn


@dataclass(slots=True)
class Drawing:
    """A strategy that draws k neurons by weight; with ``each``, k of every net.

    ``counts``: it asks how often neurons were active; ``of_seed``: and what each lane has covered of its seed.
    """

    k: int
    plan: Callable[[Observer], Weigh]
    each: bool = False
    counts: bool = False
    of_seed: bool = False
    ends: bool = False

    def begin(self, observer: Observer, rng: Stream) -> "Drawn":
        return Drawn(self, observer)


class Drawn:
    """Such a strategy at work."""

    def __init__(self, strategy: Drawing, observer: Observer) -> None:
        self.strategy = strategy
        self._widths = [layers.neurons for layers in observer.layers] if strategy.each else [observer.neurons]
        check_k(strategy.k, min(self._widths))
        self.k = strategy.k * len(self._widths)
        self.counts = torch.zeros(observer.neurons, dtype=torch.int64, device=observer.targets[0].device)
        self._before = self.counts.clone()  # those of the state it began with
        self._weigh = strategy.plan(observer)
        self._coverage: Coverage | None = None  # the campaign's, known once something was chosen

    def start(self, lanes: Cases) -> Cases:
        if not self.strategy.of_seed:
            return lanes
        nothing = torch.zeros(len(lanes), len(self.counts), dtype=torch.bool, device=self.counts.device)
        return lanes.note(**{SEED_COVERED: nothing})

    def choose(self, lanes: Cases, seen: Seen, coverage: Coverage, rng: Rows) -> Push:
        self._coverage = coverage
        weight = self._weigh(Known(lanes, seen, coverage, self.counts)).expand(len(seen), -1)
        parts, first = [], 0
        for net, part in enumerate(weight.split(self._widths, 1)):
            drawn = draw(part, self.strategy.k, rng.at(net))
            parts.append(Push(drawn.neurons + first, drawn.signs))
            first += part.shape[1]
        return joined(parts)

    def learn(self, lanes: Cases, seen: Seen, failing: Tensor, counted: Tensor) -> Cases:
        if not self.strategy.counts and not self.strategy.of_seed:
            return lanes
        # A case taken from the queue counts again, as the code of DLFuzz has it.
        now = active(self._coverage, seen) & (counted | looked_at(lanes))[:, None]
        self.counts += now.sum(0)
        return lanes.note(**{SEED_COVERED: lanes.info[SEED_COVERED] | now}) if self.strategy.of_seed else lanes

    def end(self, lanes: Cases) -> None:
        return

    def state(self) -> dict[str, Tensor]:
        return {"counts": self.counts.cpu()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.counts.copy_(state["counts"])
        self._before.copy_(self.counts)

    def news(self) -> dict[str, Tensor]:
        return {"counts": (self.counts - self._before).cpu()}

    def merge(self, news: Mapping[str, Tensor]) -> None:
        self.counts += news["counts"].to(self.counts.device)


def draw(weight: Tensor, k: int, rng: Rows) -> Push:
    """k neurons of each row, one after another without repetition, each by its share of the weight that is left.

    Where fewer than k weigh anything, the rest have sign 0. It is a race of exponential times, the weights their rates.
    """
    time = -torch.log1p(-rng.uniform((weight.shape[1],)).to(weight.device))
    time = torch.where(weight > 0, time / weight, torch.inf)
    first = time.topk(k, 1, largest=False)
    return Push(first.indices, first.values.isfinite().to(torch.float32))


def joined(parts: list[Push]) -> Push:
    """Pushes side by side."""
    return Push(torch.cat([part.neurons for part in parts], 1), torch.cat([part.signs for part in parts], 1))


def check_k(k: int, neurons: int) -> None:
    if k < 1:
        raise UsageError(f"a strategy pushes at least one neuron, got k={k}")
    if k > neurons:
        raise UsageError(f"k={k} neurons are to be pushed, and the layers looked at have {neurons}; ask for fewer")
