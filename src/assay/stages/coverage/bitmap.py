"""Coverage by cells: one byte a cell on the device of the net, filled without ever asking how far it is."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import UsageError
from assay.subjects.observer import Observer, Seen

NONE = -1  # the place of no cell
_BLOCK = 254  # rows at a time: as many numbers as a byte has beside those for covered and uncovered
_LEFT = 255

# The cells that each case reaches, (N, M) places, NONE where it reaches fewer; no row names a cell twice.
Reach = Callable[[Seen], Tensor]


class Part(NamedTuple):
    """The cells of one layer, ``total`` of which can be reached."""

    label: str
    cells: slice
    total: int


@dataclass(slots=True)
class Bitmap:
    """Which of ``cells`` are covered, where ``reach`` names those of each case, in ``width`` columns.

    A byte is 0 where its cell is covered and 255 where not; while a block of rows is added it is the number of the
    first row to reach the cell, which tells what each adds after those before it. Behind the cells lie ``width`` bytes
    that are always 0: what NONE stands for, one a column, so that threads do not queue for one byte.
    """

    reach: Reach
    cells: int
    width: int
    device: torch.device
    total: int
    parts: tuple[Part, ...] = ()
    alone: Callable[[Seen], Tensor] | None = None  # what CTM goes by, where that is not the count of cells
    static: bool = False  # whether ``reach`` always takes the same steps, so that a CUDA graph may repeat them
    _left: Tensor = field(init=False, repr=False)
    _spare: Tensor = field(init=False, repr=False)
    _numbers: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._left = torch.full((self.cells + self.width,), _LEFT, dtype=torch.uint8, device=self.device)
        self._left[self.cells :] = 0
        self._spare = torch.arange(self.cells, self.cells + self.width, device=self.device)
        self._numbers = torch.arange(1, _BLOCK + 1, dtype=torch.uint8, device=self.device)[:, None]

    def covered(self) -> float:
        return int(self.reached().sum())

    def reached(self) -> Tensor:
        """Whether each cell is covered, (cells,), on the device."""
        return self._left[: self.cells] == 0

    def per_layer(self) -> list[tuple[str, int, int]]:
        """Label, covered cells and total of each layer."""
        reached = self.reached().cpu()
        return [(part.label, int(reached[part.cells].sum()), part.total) for part in self.parts]

    def active(self, seen: Seen) -> Tensor:
        return self.alone(seen) if self.alone else self._each(seen, lambda slots: (slots < self.cells).sum(1))

    def gain(self, seen: Seen) -> Tensor:
        return self._each(seen, lambda slots: (self._at(slots) != 0).sum(1))

    def add(self, seen: Seen) -> Tensor:
        return self._each(seen, self._add)

    def state(self) -> dict[str, Tensor]:
        return {"bits": torch.from_numpy(np.packbits(self.reached().cpu().numpy()))}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self._left[: self.cells] = torch.where(self._unpacked(state), 0, _LEFT)

    def merge(self, state: Mapping[str, Tensor]) -> None:
        self._left[: self.cells].masked_fill_(self._unpacked(state), 0)

    def _add(self, slots: Tensor) -> Tensor:
        number = self._numbers[: len(slots)]
        flat = slots.flatten()
        self._left.scatter_reduce_(0, flat, number.expand_as(slots).flatten(), "amin")  # what is covered is 0 and stays
        first = self._at(slots) == number
        self._left.scatter_(0, flat, 0)
        return first.sum(1)

    def _at(self, slots: Tensor) -> Tensor:
        return self._left.gather(0, slots.flatten()).view_as(slots)  # not by brackets, which take eight times as long

    def _each(self, seen: Seen, count: Callable[[Tensor], Tensor]) -> Tensor:
        """``count`` of the slots of every case, in blocks of rows."""
        found = [count(slots) for slots in self._slots(seen)]
        return torch.cat(found) if found else torch.zeros(0, dtype=torch.int64, device=self.device)

    def _slots(self, seen: Seen) -> Iterator[Tensor]:
        for start in range(0, len(seen), _BLOCK):
            places = self.reach(seen[start : start + _BLOCK])
            yield torch.where(places < 0, self._spare, places)

    def _unpacked(self, state: Mapping[str, Tensor]) -> Tensor:
        bits = state["bits"].numpy()
        if len(bits) != (self.cells + 7) // 8:
            raise UsageError(f"this state is of about {len(bits) * 8} cells, the criterion has {self.cells} here")
        return torch.from_numpy(np.unpackbits(bits, count=self.cells).astype(bool)).to(self.device)


def over_neurons(
    observer: Observer, reach: Reach, *, per: int = 1, width: int | None = None, counts: Tensor | None = None
) -> Bitmap:
    """A bitmap with ``per`` cells for each neuron, those of neuron n from n · per on.

    ``width`` is how many cells a case reaches at most (one a neuron unless given), ``counts`` (W,) how many of a
    neuron's cells can be reached at all, where that is not every one.
    """
    counts = torch.full((observer.neurons,), per) if counts is None else counts.cpu()
    parts = tuple(
        Part(label, slice(s.start * per, s.stop * per), int(counts[s].sum()))
        for label, s in zip(labels(observer), observer.slices, strict=True)
    )
    device = observer.targets[0].device
    wide = observer.neurons if width is None else width
    total = sum(part.total for part in parts)
    ours = str(getattr(reach, "__module__", "")).startswith("assay.")  # of others nobody knows what they do
    return Bitmap(reach, observer.neurons * per, wide, device, total, parts, static=ours)


def labels(observer: Observer) -> list[str]:
    """The layers by name; of several nets, with the number of the net."""
    several = len(observer.layers) > 1
    nets = enumerate(observer.layers, 1)
    return [f"{net}:{layer.label}" if several else layer.label for net, layers in nets for layer in layers.each]
