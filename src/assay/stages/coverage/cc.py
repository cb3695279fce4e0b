"""Cluster coverage: vectors of a layer that are far from all seen before."""

import fnmatch
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.errors import UsageError
from assay.core.registry import register
from assay.core.specs import did_you_mean, split
from assay.stages.coverage import Coverage, Criterion
from assay.stages.coverage.profile import Profile
from assay.stages.coverage.rule import Rule
from assay.subjects.observer import Observer, Seen

_BYTES = 1 << 30
_SMALL = 1 << 15  # what 16 bits can number
_BLOCK = 256  # rows whose distances from each other are taken at a time


@register("criterion", paper="TensorFuzz 2019", needs=("activation",))
def cc(*, distance: float = 1.0, layers: str = "*", most: int = 4096) -> Criterion:
    """Vectors of a layer's neurons farther (l2) than ``distance`` from all earlier ones, in every layer together.

    ``layers`` are patterns of names among those looked at. Each keeps its last ``most`` vectors: when it has more, the
    oldest goes, and what is near to that one alone is new again. All that were new are counted.

    Formula: |{tests t : min over earlier kept t' of ‖a(t) − a(t')‖₂ > distance}|, per layer, summed.
    """
    if not math.isfinite(distance) or distance < 0:
        raise UsageError(f"cc: distance must be 0 or more, got {distance}")
    if most < 1:
        raise UsageError(f"cc: most must be 1 or more vectors, got {most}")

    def begin(observer: Observer, profile: Profile | None) -> Coverage:
        slices = _chosen(observer, layers)
        size = sum(s.stop - s.start for s in slices) * most * 4
        if size > _BYTES:
            raise UsageError(
                f"cc: {most} vectors of these layers take {size / 2**30:.1f} GiB; lower most, or name few layers"
            )
        device = observer.targets[0].device
        kept = (_Kept(torch.zeros(most, s.stop - s.start, device=device)) for s in slices)
        return Clusters(slices, distance, tuple(kept))

    return Rule(begin)


def _chosen(observer: Observer, patterns: str) -> tuple[slice, ...]:
    wanted = split(patterns)
    names = [layer.name for layer in observer.each]
    lost = [p for p in wanted if not any(fnmatch.fnmatchcase(name, p) for name in names)]
    if lost or not wanted:
        name = (lost or [patterns])[0]
        raise UsageError(f"cc: no layer that is looked at is called {name!r}; {did_you_mean(name, names)}")
    pairs = zip(names, observer.slices, strict=True)
    return tuple(s for name, s in pairs if any(fnmatch.fnmatchcase(name, p) for p in wanted))


@dataclass(slots=True)
class _Kept:
    """The vectors kept of one layer, a ring (most, w): of ``count`` put in, number i lies in row i % most.

    ``before`` were kept before this ring began, and are gone.
    """

    vectors: Tensor
    count: int = 0
    before: int = 0

    @property
    def total(self) -> int:
        return self.before + self.count

    def far(self, x: Tensor, distance: float) -> Tensor:
        """Which rows are far from all that are kept, (N,)."""
        return x.isfinite().all(1) & (_apart(x, self.vectors[: self.count]) > distance).all(1)

    def add(self, x: Tensor, distance: float) -> Tensor:
        """Keep what is far from all that are kept when its turn comes, row after row; which rows were, (N,)."""
        newest = self._newest(x, distance)
        beside = (~(_apart(x, x) > distance)).tril(-1)  # of the rows before it
        finite = x.isfinite().all(1)
        kept = finite & (newest < 0)
        while True:  # with all rows before it right a row is, so that each turn sets one right, mostly all: few turns
            number = self.count + kept.cumsum(0) - kept.long()  # that of each row, if it is kept
            oldest = number - len(self.vectors)  # that is still there then
            met = beside & kept & (number >= oldest[:, None])
            now = finite & (newest < oldest.clamp(min=0)) & ~met.any(1)
            if torch.equal(now, kept):
                break
            kept = now
        self._put(x[kept])
        return kept

    def in_turn(self) -> Tensor:
        """Those held, the oldest first."""
        if self.count <= len(self.vectors):
            return self.vectors[: self.count]
        return self.vectors.roll(-(self.count % len(self.vectors)), 0)

    def load(self, vectors: Tensor, count: int) -> None:
        """Hold these, the last of ``count``, the oldest first."""
        self.count, self.before = 0, count - len(vectors)
        self._put(vectors)

    def _newest(self, x: Tensor, distance: float) -> Tensor:
        """The number of the newest that is held and not far from each row, -1 where all are far, (N,)."""
        newest = torch.full((len(x),), -1, device=x.device)
        if self.count:
            held = self.in_turn()
            narrow = torch.int16 if len(held) < _SMALL else torch.int32  # in int64 this takes as long as the distances
            places = torch.arange(1, len(held) + 1, dtype=narrow, device=x.device)
            near = (_apart(x, held) > distance).logical_not_()
            place = (near * places).amax(1).long()  # 0 where there is none
            newest = torch.where(place > 0, self.count - len(held) - 1 + place, newest)
        return newest

    def _put(self, new: Tensor) -> None:
        last = new[-len(self.vectors) :]
        self.count += len(new)
        places = torch.arange(self.count - len(last), self.count, device=last.device) % len(self.vectors)
        self.vectors[places] = last


def _apart(x: Tensor, others: Tensor) -> Tensor:
    # By differences: by products, a distance would depend on the rows beside it in its last digits.
    return torch.cdist(x, others, compute_mode="donot_use_mm_for_euclid_dist")


@dataclass(slots=True)
class Clusters:
    """The vectors of all layers. It asks the device how many were new, once or more a batch."""

    slices: tuple[slice, ...]
    distance: float
    layers: tuple[_Kept, ...]
    total: int = 0

    def covered(self) -> float:
        return sum(layer.total for layer in self.layers)

    def active(self, seen: Seen) -> Tensor:
        """The layers in which a case is a vector at all."""
        return self._each(seen, lambda _, x: x.isfinite().all(1))

    def gain(self, seen: Seen) -> Tensor:
        return self._each(seen, lambda layer, x: layer.far(x, self.distance))

    def add(self, seen: Seen) -> Tensor:
        return self._each(seen, lambda layer, x: layer.add(x, self.distance))

    def state(self) -> dict[str, Tensor]:
        held = {f"layer{i}": layer.in_turn().cpu().clone() for i, layer in enumerate(self.layers)}
        return held | {"counts": torch.tensor([layer.total for layer in self.layers])}

    def load(self, state: Mapping[str, Tensor]) -> None:
        held = self._vectors(state)
        counts = state["counts"].tolist() if "counts" in state else map(len, held)  # once none was ever let go
        for layer, vectors, count in zip(self.layers, held, counts, strict=True):
            layer.load(vectors, count)

    def merge(self, state: Mapping[str, Tensor]) -> None:
        """Keep those of the other's vectors that are far from all kept here; what it has let go is not counted."""
        for layer, vectors in zip(self.layers, self._vectors(state), strict=True):
            for block in vectors.split(_BLOCK):
                layer.add(block, self.distance)

    def _vectors(self, state: Mapping[str, Tensor]) -> list[Tensor]:
        found = [state[name] for i in range(len(state)) if (name := f"layer{i}") in state]
        if [own.shape[1] for own in found] != [layer.vectors.shape[1] for layer in self.layers]:
            raise UsageError("this state is of other layers than those looked at here")
        return [own.to(layer.vectors) for own, layer in zip(found, self.layers, strict=True)]

    def _each(self, seen: Seen, of: Callable[[_Kept, Tensor], Tensor]) -> Tensor:
        """How many layers it is true of, for each case, in blocks of rows, (N,)."""
        gains = torch.zeros(len(seen), dtype=torch.int64, device=seen.neurons.device)
        for layer, s in zip(self.layers, self.slices, strict=True):
            values = seen.neurons[:, s].to(layer.vectors.dtype)
            for start in range(0, len(seen), _BLOCK):
                rows = slice(start, start + _BLOCK)
                gains[rows] += of(layer, values[rows])
        return gains
