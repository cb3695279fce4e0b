"""Top-k neuron patterns: how many different sets of most active neurons there are."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from assay.core.errors import UsageError
from assay.core.registry import register
from assay.stages.coverage import Coverage, Criterion
from assay.stages.coverage.profile import Profile
from assay.stages.coverage.rule import Rule
from assay.stages.coverage.tops import Tops, check_k
from assay.subjects.observer import Observer, Seen

_EMPTY = torch.iinfo(torch.int64).max
_TRIES = 16  # slots a pattern may take; nine tenths of the table full, 1 in 5 patterns finds none
_BLOCK = 1024  # rows compared with each other at a time


@register("criterion", paper="DeepGauge 2018", needs=("activation",))
def tknp(*, k: int = 2, most: int = 1048576) -> Criterion:
    """Different patterns: the k largest neurons of every layer together, in any order; none of a case with a NaN.

    They are told apart by 64-bit hashes in a table of ``most`` slots (up to a power of two). As it fills up, a pattern
    that finds no slot is not counted: the number is then a lower bound.

    Formula: |{sets of the k largest neurons of every layer, one set a test}|.
    """
    check_k("tknp", k)
    if most < 1:
        raise UsageError(f"tknp: most must be 1 or more patterns, got {most}")

    def begin(observer: Observer, profile: Profile | None) -> Coverage:
        tops = Tops.of(observer, k)
        return Patterns(tops, _keys(observer.neurons).to(observer.targets[0].device), 1 << (most - 1).bit_length())

    return Rule(begin)


def _keys(count: int) -> Tensor:
    """A fixed random number for each neuron, and 0 at the end, where NONE points to."""
    digests = (hashlib.blake2b(b"neuron %d" % i, digest_size=8).digest() for i in range(count))
    return torch.tensor([*(int.from_bytes(digest, "little", signed=True) for digest in digests), 0])


@dataclass(slots=True)
class Patterns:
    """A table of hashes with open addressing: of what is pending for an empty slot, the smallest gets it."""

    tops: Tops
    keys: Tensor
    slots: int
    total: int = 0
    _table: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._table = self.keys.new_full((self.slots + 1,), _EMPTY)  # the last is written to in place of none

    def covered(self) -> float:
        return len(self._kept())

    def active(self, seen: Seen) -> Tensor:
        return (self._hashes(seen) != _EMPTY).to(torch.int64)

    def gain(self, seen: Seen) -> Tensor:
        hashes = self._hashes(seen)
        return (~self._known(hashes, self._places(hashes))).to(torch.int64)

    def add(self, seen: Seen) -> Tensor:
        return self._insert(self._hashes(seen)).to(torch.int64)

    def state(self) -> dict[str, Tensor]:
        return {"hashes": self._kept().sort().values.cpu()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self._table.fill_(_EMPTY)
        self.merge(state)

    def merge(self, state: Mapping[str, Tensor]) -> None:
        self._insert(state["hashes"].to(self.keys.device))

    def _kept(self) -> Tensor:
        return self._table[:-1][self._table[:-1] != _EMPTY]

    def _hashes(self, seen: Seen) -> Tensor:
        """The sum of the keys of a pattern's neurons, which does not know their order, (N,); _EMPTY for none."""
        sums = self.keys[self.tops(seen)].sum(1).clamp(max=_EMPTY - 1)
        return torch.where(seen.neurons.isnan().any(1), _EMPTY, sums)

    def _places(self, hashes: Tensor) -> Tensor:
        """The slots a pattern may take, (N, tries)."""
        steps = torch.arange(min(_TRIES, self.slots), device=hashes.device)
        return (hashes[:, None] + steps * ((hashes >> 40) | 1)[:, None]) & (self.slots - 1)

    def _known(self, hashes: Tensor, places: Tensor) -> Tensor:
        """Which are in the table, or no pattern."""
        return (self._table[places] == hashes[:, None]).any(1) | (hashes == _EMPTY)

    def _insert(self, hashes: Tensor) -> Tensor:
        """Put in what is new; which rows were, (N,)."""
        return torch.cat([self._insert_block(block) for block in hashes.split(_BLOCK)])

    def _insert_block(self, hashes: Tensor) -> Tensor:
        places = self._places(hashes)
        again = (hashes[:, None] == hashes).tril(-1).any(1)
        new = ~self._known(hashes, places) & ~again
        pending = new.clone()
        for slot in places.unbind(1):
            wanted = pending & (self._table[slot] == _EMPTY)
            self._table.scatter_reduce_(0, torch.where(wanted, slot, self.slots), hashes, "amin")
            pending &= ~(wanted & (self._table[slot] == hashes))
        return new & ~pending
