"""What selectors share: scores of the cases, their order, and turns between groups."""

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.registry import bind
from assay.core.specs import step
from assay.subjects.bench import Bench
from assay.subjects.target import require


def scored(bench: Bench, cases: Cases, score: str, eps: float | None, norm: str) -> Tensor:
    """The score of each case, float64 on the CPU, (N,); ``score`` is a text such as ``fol(norm=linf, box=true)``.

    A bare name without eps and norm means the column of that name where there is one: what the run itself noted.
    """
    name, params = step(score)
    if name in cases.info and not params and eps is None and not norm:
        return _one_each(cases.info[name], len(cases), score)
    bound = bind("score", name, params, {"eps": eps, "norm": norm or None})
    require(bench.target, bound.entry.needs, f"score {bound.entry.name!r}")

    def ask(rows: Tensor) -> Tensor:
        return _one_each(bound(bench, cases[rows]), len(rows), score)

    return bench.chunks.map(ask, torch.arange(len(cases)))


def _one_each(values: object, n: int, score: str) -> Tensor:
    if not isinstance(values, Tensor) or values.shape != (n,):
        form = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
        raise UsageError(f"a score is one number for each of the {n} cases, {score!r} gave {form}")
    return values.detach().cpu().double()


def ranked(values: Tensor, largest: bool) -> Tensor:
    """The rows from the best score to the worst; equal scores in the order of rows, NaN last."""
    return (-values if largest else values).argsort(stable=True)


def checked(rows: object, k: int, n: int, who: str) -> Tensor:
    """What a selector returned, on the CPU, if it is what it must be: ``k`` distinct rows of ``n`` cases."""
    if isinstance(rows, Tensor) and rows.shape == (k,) and rows.dtype == torch.int64:
        rows = rows.cpu()
        if len(rows.unique()) == k and bool(((rows >= 0) & (rows < n)).all()):
            return rows
    raise UsageError(f"selector {who!r} must return {k} distinct rows of {n} cases, as (k,) int64; it gave {rows}")


def turns(groups: Tensor, order: Tensor) -> Tensor:
    """Which turn each row has when every group gives one row a turn, its rows in ``order`` (a permutation), (N,).

    Taking the rows of the first turns shares them out evenly: a group that has run out leaves its share to the others.
    """
    together = order[groups[order].argsort(stable=True)]
    grouped = groups[together]
    place = torch.arange(len(groups))
    first = torch.searchsorted(grouped, grouped)  # where the row's group begins
    return torch.empty_like(place).scatter_(0, together, place - first)
