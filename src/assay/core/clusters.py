"""Failures that are alike: of the same classes, and with a change that raises and lowers the same places.

The first failure of its classes is a kind, and so is every one that is like no kind before it; all others belong to the
first kind they are like. So a failure's kind is settled by those before it: more failures never change it.
"""

from typing import cast

import torch
from torch import Tensor

CELLS = 4  # a side of an image is looked at in so many parts
PARTS = 64  # and an input that is no image
ALIKE = 0.6  # least cosine of two changes of a kind
MOST = 32  # kinds of two classes: what is like none of them then belongs to the nearest


def directions(change: Tensor) -> Tensor:
    """What each change (N, *shape) raises and what it lowers in every part of the input, as unit vectors (N, F).

    How much does not matter, nor does the order of signs inside a part: noise has one direction, not one each time. A
    change of nothing has a direction of its own.
    """
    parts = _parts(tuple(change.shape[1:])).to(change.device)
    flat = change.flatten(1).float()
    sums = torch.cat([flat.clamp_min(0) @ parts, -(flat.clamp_max(0) @ parts)], 1).double()
    size = sums.norm(dim=1, keepdim=True)
    return torch.cat([sums / size.clamp_min(torch.finfo(size.dtype).tiny), (size == 0).to(sums)], 1)


def _parts(shape: tuple[int, ...]) -> Tensor:
    """Which part each entry of the flattened input belongs to, one-hot, (D, P)."""
    if len(shape) == 3:
        depth, height, width = shape
        rows, columns = (torch.arange(side) * min(CELLS, side) // side for side in (height, width))
        cells = rows[:, None] * CELLS + columns
        place = (torch.arange(depth)[:, None, None] * CELLS**2 + cells).flatten()
    else:
        width = torch.Size(shape).numel()
        place = torch.arange(width) * min(PARTS, width) // max(width, 1)
    return torch.nn.functional.one_hot(place).float()


def clusters(groups: Tensor, direction: Tensor) -> Tensor:
    """The kind of each failure, (N,), numbered from 0 as they first occur; only those of one group can be alike.

    >>> change = torch.tensor([[1.0, 0], [0, 1], [2, 0], [-1, 0], [1, 0]])
    >>> clusters(torch.tensor([0, 0, 0, 0, 1]), directions(change)).tolist()
    [0, 1, 0, 2, 3]
    """
    first = torch.empty_like(groups)  # the row that each one's kind began with
    order = groups.argsort(stable=True)
    _, counts = groups[order].unique_consecutive(return_counts=True)
    for rows in order.split(counts.tolist()):
        first[rows] = rows[_of_group(direction[rows])]
    _, kinds = first.unique(return_inverse=True)
    return cast(Tensor, kinds)


def _of_group(direction: Tensor) -> Tensor:
    """For each row the one that began its kind, (N,)."""
    first = torch.full((len(direction),), -1, dtype=torch.int64, device=direction.device)
    left, begun = torch.arange(len(direction), device=direction.device), list[Tensor]()
    while len(left) and len(begun) < MOST:
        begun.append(left[0])
        like = (direction[left] * direction[left[0]]).sum(1) >= ALIKE
        like[0] = True  # itself, however its square was rounded
        first[left[like]] = left[0]
        left = left[~like]
    if len(left):
        chosen = torch.stack(begun)
        first[left] = chosen[(direction[left] @ direction[chosen].T).argmax(1)]
    return first


class Begun:
    """The kinds that have begun so far, where failures come a few at a time: as many as ``clusters`` tells of all."""

    def __init__(self) -> None:
        self._first: dict[tuple[int, ...], Tensor] = {}  # by group: the directions that its kinds began with

    def __len__(self) -> int:
        return sum(map(len, self._first.values()))

    def add(self, groups: Tensor, direction: Tensor) -> None:
        """More failures: ``groups`` (N, G) of whole numbers, which name what can be alike, and their directions."""
        named, place = groups.unique(dim=0, return_inverse=True)
        for number, name in enumerate(named.tolist()):
            known = self._first.get(tuple(name), direction[:0])
            left = direction[place == number]
            for first in known:
                left = left[(left * first).sum(1) < ALIKE]
            while len(left) and len(known) < MOST:
                known = torch.cat([known, left[:1]])
                left = left[1:][(left[1:] * left[0]).sum(1) < ALIKE]
            self._first[tuple(name)] = known
