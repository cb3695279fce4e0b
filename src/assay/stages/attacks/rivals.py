"""The wrong classes that targeted attacks try one after another."""

import torch
from torch import Tensor

from assay.core.randomness import Rows
from assay.subjects.target import Target

FULL = 64  # inputs that fill a CPU
FULL_GPU = 1024


def full(device: torch.device) -> int:
    """How many inputs make a batch that costs what it should: smaller ones cost nearly as much."""
    return FULL_GPU if device.type == "cuda" else FULL


def rivals_of(target: Target, x: Tensor, y: Tensor, count: int) -> Tensor:
    """The ``count`` classes other than ``y`` with the highest scores, best first, (N, ≤ count)."""
    with torch.no_grad():
        scores = target(x).scatter(1, y[:, None], -torch.inf)
    return scores.topk(min(count, scores.shape[1] - 1), 1).indices


def at_once(first: int, count: int, left: int, full: int = FULL) -> range:
    """Which rivals to try together from the ``first`` on, of ``count``, when so many inputs are ``left``.

    The likeliest rival breaks most of the inputs that break at all, so it is tried alone. A small batch costs nearly as
    much as one of ``full`` inputs, so after it as many are tried together as fill one; `Chunks` halves what does not
    fit in memory.
    """
    room = 1 if first == 0 else max(1, full // max(left, 1))
    return range(first, min(first + room, count))


def repeated(rng: Rows, places: range) -> Rows:
    """The randomness of the rows for each rival in turn, one after another, (rivals · N)."""
    return Rows(torch.cat([rng.at(place).key for place in places]))
