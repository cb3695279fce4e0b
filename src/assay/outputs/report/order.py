"""In which order failures are shown: what is different first."""

import torch
from torch import Tensor

from assay.core.cases import Cases


def rows_of(cases: Cases, most: int, smaller: Cases | None = None) -> Tensor:
    """Rows in the order of the gallery: in turn over the pairs (true, predicted), one of each kind before a second of
    any, those with a ``smaller`` form and then the smallest change first; at most so many.
    """
    given, kind = cases.info["pred"], cases.info["kind_of_failure"]
    pair = (cases.y + 1) * (int(given.max()) + 2) + given + 1
    if not bool(cases.info["seeded"].all()):
        kind = torch.arange(len(cases))  # not known: each counts as its own
    by_size = cases.info["size"].nan_to_num(0.0).argsort(stable=True)
    if smaller is not None:  # of its kind, the one that shows most
        by_size = by_size[torch.isin(by_size, smaller.info["row"]).logical_not().long().argsort(stable=True)]
    second = _turn(kind, by_size)  # of its kind
    # The kinds of a pair come in the order of their smallest cases.
    first = by_size[second[by_size] == 0]
    place = torch.empty(int(kind.max()) + 1, dtype=torch.int64)
    place[kind[first]] = _turn(pair, first)[first]
    order = by_size[pair[by_size].argsort(stable=True)]
    order = order[place[kind[order]].argsort(stable=True)]
    return order[second[order].argsort(stable=True)][:most]


def _turn(group: Tensor, order: Tensor) -> Tensor:
    """For the rows in this order, how many of the same group come before each; by row, 0 for all others."""
    grouped = order[group[order].argsort(stable=True)]
    _, counts = group[grouped].unique_consecutive(return_counts=True)
    turn = torch.zeros_like(group)
    turn[grouped] = torch.cat([torch.arange(int(count)) for count in counts])
    return turn
