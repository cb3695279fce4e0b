"""Neural coverage: how far the values of neurons vary, and vary together."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.errors import UsageError
from assay.core.registry import register
from assay.stages.coverage import Coverage, Criterion
from assay.stages.coverage.profile import Profile
from assay.stages.coverage.rule import Rule
from assay.stages.coverage.tops import by_width
from assay.subjects.observer import Observer, Seen

_MOST = 1 << 30  # bytes of covariances
_STATE = ("squares", "mean", "count")
_FIELDS = (*_STATE, "value")
_ENTRIES = 1 << 22  # of covariances at a time, 32 MiB


@register("criterion", paper="NLC 2023", needs=("activation",))
def nlc(*, growing: bool = False) -> Criterion:
    """The mean absolute covariance of each layer's neurons, summed over layers; a gain is what the layers grew by.

    Every case counts, so that the number is that of the test suite in whatever order it came. With ``growing`` a layer
    takes in only cases that make it grow, as a fuzzer that keeps nothing else would have it.

    Formula: Σ_layers mean |covariance of the layer's neurons over the tests|.
    """

    def begin(observer: Observer, profile: Profile | None) -> Coverage:
        size = sum(layer.width**2 for layer in observer.each) * 8
        if size > _MOST:
            widest = max(observer.each, key=lambda layer: layer.width)
            raise UsageError(
                f"nlc: the covariances of these layers take {size / 2**30:.1f} GiB; leave wide ones out "
                f"({widest.label} has {widest.width} neurons), --layers names those to look at"
            )
        return Covariances(tuple(_Layers.of(places) for places in by_width(observer)), growing)

    return Rule(begin)


@dataclass(slots=True)
class _Layers:
    """G layers of w neurons each: ``squares`` (G, w, w) are sums of products of distances from the mean (G, w)."""

    places: Tensor
    squares: Tensor
    mean: Tensor
    count: Tensor
    value: Tensor

    @staticmethod
    def of(places: Tensor) -> "_Layers":
        g, w = places.shape
        zeros = torch.zeros(g, dtype=torch.float64, device=places.device)
        return _Layers(places, zeros.new_zeros(g, w, w), zeros.new_zeros(g, w), zeros, zeros.clone())

    def tried(self, rows: Tensor, *, together: bool) -> tuple["_Layers", Tensor]:
        """What each of rows (B, G, w) would make of it, alone or after those before it; where it can be taken, (B, G).

        The fields of the first have a row for each. A layer takes in no case that is NaN or infinite there.
        """
        fine = rows.isfinite().all(2)
        apart = torch.where(fine[..., None], rows - self.mean, 0)
        count = self.count + (fine.cumsum(0) if together else fine)
        some = count.clamp(min=1)
        mean = self.mean + (apart.cumsum(0) if together else apart) / some[..., None]
        if together:
            apart = torch.where(fine[..., None], rows - torch.cat((self.mean[None], mean[:-1])), 0)
        products = (apart * ((some - 1) / some)[..., None])[..., None] * apart[..., None, :]  # Welford 1962
        squares = self.squares + (products.cumsum(0) if together else products)
        return _Layers(self.places, squares, mean, count, _size(squares, some)), fine

    def gain(self, rows: Tensor) -> Tensor:
        """What the layers would grow by with each row alone, (B,)."""
        return (self.tried(rows, together=False)[0].value - self.value).clamp(min=0).sum(1)

    def add(self, rows: Tensor) -> Tensor:
        """Take all rows; what the layers grew by with each, (B,)."""
        now, _ = self.tried(rows, together=True)
        growth = now.value - torch.cat((self.value[None], now.value[:-1]))
        self._become(*(getattr(now, name)[-1].clone() for name in _FIELDS))  # not views of what all rows made
        return growth.clamp(min=0).sum(1)

    def add_growing(self, row: Tensor) -> Tensor:
        """Take one row (1, G, w) in the layers that grow with it, and in those that have none yet."""
        now, fine = self.tried(row, together=False)
        growth = now.value[0] - self.value
        take = fine[0] & ((growth > 0) | (self.count == 0))
        shapes = ((-1, 1, 1), (-1, 1), (-1,), (-1,))
        pairs = ((getattr(now, name)[0], getattr(self, name)) for name in _FIELDS)
        self._become(*(torch.where(take.view(s), *pair) for s, pair in zip(shapes, pairs, strict=True)))
        return torch.where(take, growth, 0).clamp(min=0).sum()[None]

    def _become(self, squares: Tensor, mean: Tensor, count: Tensor, value: Tensor) -> None:
        self.squares, self.mean, self.count, self.value = squares, mean, count, value

    def join(self, squares: Tensor, mean: Tensor, count: Tensor) -> None:
        """Those of other cases, too (Chan et al. 1983)."""
        both = (self.count + count).clamp(min=1)
        apart = mean - self.mean
        crossed = apart[:, :, None] * apart[:, None, :] * (self.count * count / both)[:, None, None]
        self.squares = self.squares + squares + crossed
        self.mean = self.mean + apart * (count / both)[:, None]
        self.count = self.count + count
        self.value = _size(self.squares, both)


def _size(squares: Tensor, count: Tensor) -> Tensor:
    """Mean absolute covariance of each layer, (G,)."""
    return squares.abs().mean((-2, -1)) / count


@dataclass(slots=True)
class Covariances:
    """Those of all layers. A case costs as many operations as the covariances have entries."""

    groups: tuple[_Layers, ...]
    growing: bool
    total: int = 0

    def covered(self) -> float:
        return float(sum(group.value.sum() for group in self.groups))

    def active(self, seen: Seen) -> Tensor:
        """0 of every case: one case does not vary."""
        return torch.zeros(len(seen), dtype=torch.float64, device=seen.neurons.device)

    def gain(self, seen: Seen) -> Tensor:
        return self._each(seen, lambda group, rows: group.gain(rows))

    def add(self, seen: Seen) -> Tensor:
        if not self.growing:
            return self._each(seen, lambda group, rows: group.add(rows))
        return self._each(seen, lambda group, rows: torch.cat([group.add_growing(row[None]) for row in rows]))

    def state(self) -> dict[str, Tensor]:
        return {f"{name}{i}": getattr(group, name).cpu() for i, group in enumerate(self.groups) for name in _STATE}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.groups = tuple(_Layers.of(group.places) for group in self.groups)
        self.merge(state)

    def merge(self, state: Mapping[str, Tensor]) -> None:
        for i, group in enumerate(self.groups):
            squares, mean, count = (state[f"{name}{i}"].to(group.places.device) for name in _STATE)
            if squares.shape != group.squares.shape:
                raise UsageError("this state is of other layers than those looked at here")
            group.join(squares, mean, count)

    def _each(self, seen: Seen, of: Callable[[_Layers, Tensor], Tensor]) -> Tensor:
        """The sum over groups for each case, in blocks of rows, (N,)."""
        gains = torch.zeros(len(seen), dtype=torch.float64, device=seen.neurons.device)
        for group in self.groups:
            size = max(1, _ENTRIES // group.squares.numel())
            for start in range(0, len(seen), size):
                rows = slice(start, start + size)
                gains[rows] += of(group, seen.neurons[rows][:, group.places].double())
        return gains
