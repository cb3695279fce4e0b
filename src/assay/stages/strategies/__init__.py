"""Strategies: which neurons a mutation pushes. A strategy is a function of its parameters that returns one."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from torch import Tensor

from assay.core.cases import Cases
from assay.core.randomness import Rows, Stream
from assay.stages.coverage import Coverage
from assay.subjects.observer import Observer, Seen

PUSHED = ("pushed", "signs")  # the columns of a push


class Push(NamedTuple):
    """Neurons to push, (N, k) places among those of the observer, and how hard: 1 up, -1 down, 0 not at all."""

    neurons: Tensor
    signs: Tensor


class Chooser(Protocol):
    """A strategy at work. What it knows of each seed lies in columns of the lanes, which are its own to write."""

    k: int  # neurons it pushes at a time

    def start(self, lanes: Cases) -> Cases:
        """Lanes at their seeds, with the chooser's columns added."""
        ...

    def choose(self, lanes: Cases, seen: Seen, coverage: Coverage, rng: Rows) -> Push:
        """What to push in the steps that go out from these cases, of which ``seen`` is what the nets made."""
        ...

    def learn(self, lanes: Cases, seen: Seen, failing: Tensor, counted: Tensor) -> Cases:
        """After a step: ``seen`` is what the nets made of the new cases, ``counted`` says which of them are cases."""
        ...

    def end(self, lanes: Cases) -> None:
        """These seeds are done."""
        ...

    def state(self) -> dict[str, Tensor]: ...

    def load(self, state: Mapping[str, Tensor]) -> None: ...

    def news(self) -> dict[str, Tensor]:
        """What it has learnt since ``load``, on the CPU: for others that began with the same state."""
        ...

    def merge(self, news: Mapping[str, Tensor]) -> None:
        """Learn what another one has learnt; they come in the order of units."""
        ...


class Strategy(Protocol):
    """A strategy with its parameters."""

    ends: bool  # whether it asks for the smallest and largest number of each layer

    def begin(self, observer: Observer, rng: Stream) -> Chooser:
        """Nothing known yet."""
        ...
