"""Coverage criteria: what inputs reach in a net. A criterion is a function of its parameters that returns one."""

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from assay.stages.coverage.profile import Profile
from assay.subjects.observer import Observer, Seen


class Coverage(Protocol):
    """What is covered so far. It lies on the device of the net and its size does not depend on how many cases came."""

    total: int  # cells there are; 0 where a criterion has no upper end

    def covered(self) -> float:
        """How many cells are covered; of a criterion without cells, its value."""
        ...

    def active(self, seen: Seen) -> Tensor:
        """How much each case covers by itself, (N,): the score of CTM."""
        ...

    def gain(self, seen: Seen) -> Tensor:
        """What each case would add if it came alone, (N,); nothing is changed."""
        ...

    def add(self, seen: Seen) -> Tensor:
        """Cover what these cases reach; what each added after those in the rows before it, (N,)."""
        ...

    def state(self) -> dict[str, Tensor]:
        """All there is to know, for a file or another worker; on the CPU."""
        ...

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a state."""
        ...

    def merge(self, state: Mapping[str, Tensor]) -> None:
        """Cover what another worker's state covers, too."""
        ...


class Criterion(Protocol):
    """A criterion with its parameters."""

    ends: bool  # whether it asks for the smallest and largest number of each layer
    profiled: bool  # whether it asks for a profile of the training data

    def begin(self, observer: Observer, profile: Profile | None) -> Coverage:
        """Nothing covered yet. A criterion that asks for a profile refuses None."""
        ...
