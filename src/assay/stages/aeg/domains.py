"""The two domains of a data set that the generator learns to go between, and the images kept back from them."""

from typing import NamedTuple

import torch
from torch import Tensor

from assay.core.cases import UNLABELLED
from assay.core.errors import NothingToTest, UsageError
from assay.core.randomness import Stream
from assay.stages.aeg.making import Making
from assay.subjects.bench import Data

KEPT_BACK, SHARE = 500, 10  # most images kept back, and at most one of so many


class Domains(NamedTuple):
    """Rows of the data: both domains, and those kept back to measure with, which lie in neither."""

    x: Tensor
    y: Tensor
    held: Tensor


def domains(data: Data, making: Making) -> Domains:
    """The domains of ``making.split``, as even as can be; the seed decides, not the order of the data.

    Paper: an even split by hand, then three people exchange images at random. Here: every other image of each class in
    a random order; images without a label count as one class.
    """
    rng = Stream(making.seed, ("aeg", "split"))
    y = data.cases.y.cpu()
    order = torch.randperm(len(data), generator=rng.generator())
    order = order[y[order].argsort(stable=True)]  # by class, at random within
    held, rest = _kept_back(order)
    if making.pair is None:
        parts = rest[::2], rest[1::2]
    else:
        a, b = (_class(name, data) for name in making.pair)
        parts = rest[y[rest] == a], rest[y[rest] == b]
    if not all(map(len, parts)):
        raise NothingToTest(
            f"the generator needs images in both domains; {making.split} of {data.name} gives "
            f"{len(parts[0])} and {len(parts[1])}"
        )
    return Domains(*parts, held)


def _kept_back(order: Tensor) -> tuple[Tensor, Tensor]:
    """Rows kept back, evenly spread over the classes, and the others."""
    count = min(KEPT_BACK, max(1, len(order) // SHARE))
    chosen = torch.zeros(len(order), dtype=torch.bool)
    chosen[torch.arange(count) * len(order) // count] = True
    return order[chosen], order[~chosen]


def _class(name: str, data: Data) -> int:
    """The number of a class given by its name, or by its number where no class is called so."""
    if bool((data.cases.y == UNLABELLED).all()):
        raise UsageError(f"class_pair takes two classes, and {data.name} has no labels; use split=random_half")
    classes = data.spec.classes
    if name in classes:
        return classes.index(name)
    if name.isdecimal() and int(name) < len(classes):
        return int(name)
    some = ", ".join(classes[:12]) + (", …" if len(classes) > 12 else "")
    raise UsageError(f"{data.name} has no class {name!r}; its classes are {some}")
