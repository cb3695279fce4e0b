"""ADAPT's 29 facts about a neuron: 17 that its net says, and 12 that change with what was active so far."""

import torch
from torch import Tensor

from assay.stages.strategies.activity import incoming
from assay.subjects.observer import Observer

FIXED, CHANGING = 17, 12
FEATURES = FIXED + CHANGING
KINDS = ("norm", "pool", "conv", "dense", "activation", "merge", "other")
_SAME = {"softmax": "activation"}


def fixed(observer: Observer) -> Tensor:
    """Features 0-16 of every neuron, (W, 17) of 0 and 1.

    The quarter of the net its layer lies in (0-3); its incoming weight among the top 10, 10-20, 20-30, 30-40, 40-50 %
    or the lower half (4-9; a layer without weights has 0); the kind of its layer (10-16).
    """
    table = torch.zeros(observer.neurons, FIXED)
    places = [(i, len(layers.each)) for layers in observer.layers for i in range(len(layers.each))]
    for layer, rows, (place, depth) in zip(observer.each, observer.slices, places, strict=True):
        kind = _SAME.get(layer.kind, layer.kind)
        table[rows, 4 * place // depth] = 1.0
        table[rows, 10 + KINDS.index(kind if kind in KINDS else "other")] = 1.0
    weight = incoming(observer, 0.0)
    tenth = tenths(weight, torch.tensor(len(weight)))
    # Code: the slice of 30-40 % is empty, so its feature is never set. Here it is.
    return table.scatter(1, (13 - tenth.clamp_min(4))[:, None], 1.0)


def changing(counts: Tensor, failing: Tensor) -> Tensor:
    """Features 17-28 of every neuron, (W, 12) of 0 and 1.

    Active in a case that failed (17); never active (18); how often it was active, among those that were, from the top
    tenth (19) to the lowest (28).
    """
    never = counts == 0
    table = torch.zeros(len(counts), CHANGING, device=counts.device)
    table[:, 0] = failing.float()
    # The never active rank lowest, and those that were begin above them.
    tenth = tenths(counts, (~never).sum())
    return table.scatter(1, torch.where(never, 1, 11 - tenth)[:, None], 1.0)


def tenths(values: Tensor, count: Tensor) -> Tensor:
    """The tenth, 0 to 9 from below, in which each of the ``count`` largest values lies; nonsense for the others."""
    rank = values.argsort(stable=True).argsort() - (len(values) - count)
    ends = torch.arange(1, 10, device=values.device) * count.to(values.device) // 10
    return torch.bucketize(rank, ends, right=True)
