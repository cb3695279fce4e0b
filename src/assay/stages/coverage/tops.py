"""The neurons of each layer with the largest or smallest values."""

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.errors import UsageError
from assay.stages.coverage.bitmap import NONE
from assay.subjects.observer import Observer, Seen

_FEW = 10


def by_width(observer: Observer) -> tuple[Tensor, ...]:
    """The places of neurons, (G, width), of all layers of each width: one call serves the G of them."""
    groups: dict[int, list[Tensor]] = {}
    for s in observer.slices:
        groups.setdefault(s.stop - s.start, []).append(torch.arange(s.start, s.stop))
    return tuple(torch.stack(group).to(observer.targets[0].device) for group in groups.values())


@dataclass(slots=True)
class Tops:
    """Places of the k largest (or smallest) neurons of each layer, (N, width), NONE for one that is NaN.

    Of equal values the first neurons are taken, on every device; a layer of k neurons or fewer is taken whole.
    """

    groups: tuple[Tensor, ...]
    k: int
    largest: bool = True

    @staticmethod
    def of(observer: Observer, k: int, *, largest: bool = True) -> "Tops":
        return Tops(by_width(observer), k, largest)

    @property
    def width(self) -> int:
        return sum(len(group) * min(self.k, group.shape[1]) for group in self.groups)

    def __call__(self, seen: Seen) -> Tensor:
        found = [self._of_group(seen.neurons[:, group], group) for group in self.groups]
        return torch.cat(found, 1)

    def _of_group(self, values: Tensor, group: Tensor) -> Tensor:
        """Those among values (N, G, w)."""
        least = torch.finfo(values.dtype).min
        ranked = (values if self.largest else -values).nan_to_num(nan=least, posinf=-least, neginf=least)
        order = _first(ranked, self.k)
        places = group.expand(len(values), -1, -1).gather(2, order)
        return torch.where(values.gather(2, order).isnan(), NONE, places).flatten(1)


def _first(ranked: Tensor, k: int) -> Tensor:
    """Where the k largest of (…, w) finite values are, the first of equal ones; all where there are k or fewer.

    Not topk: which of equal values it takes is open, and in a ReLU layer many are 0.
    """
    if k > _FEW or k >= ranked.shape[-1]:
        return ranked.sort(dim=-1, stable=True, descending=True).indices[..., :k]
    found = []
    for _ in range(k):  # for few, a fifth of the time of sorting
        found.append(ranked.argmax(-1, keepdim=True))
        ranked = ranked.scatter(-1, found[-1], -torch.inf)
    return torch.cat(found, -1)


def check_k(name: str, k: int) -> None:
    if k < 1:
        raise UsageError(f"{name}: k must be 1 or more neurons of each layer, got {k}")
