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
_BLOCK = 256  # rows whose distances from each other are taken at a time


@register("criterion", paper="TensorFuzz 2019", needs=("activation",))
def cc(*, distance: float = 1.0, layers: str = "*", most: int = 4096) -> Criterion:
    """Vectors of a layer's neurons farther (l2) than ``distance`` from all earlier ones, in every layer together.

    ``layers`` are patterns of names among those looked at. Each keeps ``most`` vectors; after that nothing is new.
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
    """The vectors kept of one layer: the first ``used`` rows of (most, w)."""

    vectors: Tensor
    used: int = 0

    def far(self, x: Tensor, distance: float) -> Tensor:
        """Which rows are far from all that are kept, (N,); none where there is no room for more."""
        if self.used == len(self.vectors):
            return torch.zeros(len(x), dtype=torch.bool, device=x.device)
        return x.isfinite().all(1) & (_apart(x, self.vectors[: self.used]) > distance).all(1)

    def add(self, x: Tensor, distance: float) -> Tensor:
        """Keep what is far from all that are kept and from all rows before it that are; which rows were, (N,)."""
        waiting = self.far(x, distance)
        kept = torch.zeros_like(waiting)
        near = (~(_apart(x, x) > distance)).tril(-1)  # of the rows before it
        while bool(waiting.any()):  # the first that waits is decided, and with it all whose neighbours are: few turns
            now = waiting & ~(near & waiting).any(1)
            kept |= now
            waiting &= ~now & ~(near & now).any(1)
        rows = kept.nonzero().squeeze(1)[: len(self.vectors) - self.used]
        self.vectors[self.used : self.used + len(rows)] = x[rows]
        self.used += len(rows)
        return torch.zeros_like(kept).index_fill_(0, rows, value=True)


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
        return sum(layer.used for layer in self.layers)

    def active(self, seen: Seen) -> Tensor:
        """The layers in which a case is a vector at all."""
        return self._each(seen, lambda _, x: x.isfinite().all(1))

    def gain(self, seen: Seen) -> Tensor:
        return self._each(seen, lambda layer, x: layer.far(x, self.distance))

    def add(self, seen: Seen) -> Tensor:
        return self._each(seen, lambda layer, x: layer.add(x, self.distance))

    def state(self) -> dict[str, Tensor]:
        return {f"layer{i}": layer.vectors[: layer.used].cpu() for i, layer in enumerate(self.layers)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        for layer in self.layers:
            layer.used = 0
        self.merge(state)

    def merge(self, state: Mapping[str, Tensor]) -> None:
        """Keep those of the other's vectors that are far from all kept here."""
        for i, layer in enumerate(self.layers):
            vectors = state[f"layer{i}"].to(layer.vectors)
            if vectors.shape[1] != layer.vectors.shape[1]:
                raise UsageError("this state is of other layers than those looked at here")
            for block in vectors.split(_BLOCK):
                layer.add(block, self.distance)

    def _each(self, seen: Seen, of: Callable[[_Kept, Tensor], Tensor]) -> Tensor:
        """How many layers it is true of, for each case, in blocks of rows, (N,)."""
        gains = torch.zeros(len(seen), dtype=torch.int64, device=seen.neurons.device)
        for layer, s in zip(self.layers, self.slices, strict=True):
            values = seen.neurons[:, s].to(layer.vectors.dtype)
            for start in range(0, len(seen), _BLOCK):
                rows = slice(start, start + _BLOCK)
                gains[rows] += of(layer, values[rows])
        return gains
