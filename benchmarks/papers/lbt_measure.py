"""How an order of a pool is measured: faults found within budgets, APFD, and how different the first cases are."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from assay.core.chunks import Chunks
from assay.core.randomness import Stream
from assay.engines.ranking_measures import measured
from assay.subjects.sources.load import module_of
from assay.subjects.sources.module import behind
from assay.subjects.target import Target
from papers.lbt_subject import Pool

Params = dict[str, Any]

BUDGETS = (5, 10, 20, 30, 50)  # per cent of the pool
FIRST = 10  # per cent: what diversity is counted in, and what a model is retrained with
VOLUME = 100  # first cases whose volume is taken: of more than there are features it is 0
CLUSTERS = 50  # of the faults of a pool
LAYER = "flatten"  # of the witness: what its convolutions make of an input


def size_of(per_cent: int, n: int) -> int:
    """How many cases a budget is, one at least.

    >>> size_of(5, 10000), size_of(5, 30), size_of(5, 3)
    (500, 2, 1)
    """
    return max(1, round(per_cent * n / 100))


def found(failing: Tensor) -> Params:
    """Of cases in their order, ``failing`` (n,) says which are faults: the fault-detection rate at each budget with its
    mean, the plain share of faults, APFD and APFD between its bounds. Rates are None without a fault.
    """
    n = len(failing)
    each = {b: measured(failing, size_of(b, n)) for b in BUDGETS} if n else {}
    rates = [one.rate for one in each.values() if one.rate is not None]
    whole = each[BUDGETS[-1]] if each else None
    return {
        "fdr": {str(b): _rounded(one.rate) for b, one in each.items()},
        "fdr_mean": _rounded(mean(rates)) if rates else None,
        "share": {str(b): _rounded(one.share) for b, one in each.items()},
        "apfd": _rounded(whole.apfd) if whole else None,
        "apfd_norm": _rounded(whole.apfd_norm) if whole else None,
    }


def within(order: Tensor, mask: Tensor, wrong: Tensor) -> Params:
    """The same of a part of the pool, in the order that its cases have among themselves; how large the part is."""
    part = order[mask[order]]
    told = found(wrong[part])
    keys = ("fdr_mean", "apfd_norm")
    return {"n": len(part), "faults": int(wrong[part].sum()), **{key: told[key] for key in keys}}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


# ---- diversity ----


@dataclass(frozen=True, slots=True)
class Diversity:
    """How different the first cases of an order are: by features (n, d) of length 1 that another net gives, by true and
    predicted class, and by the cluster (n,) of each fault, -1 for what is none.
    """

    features: Tensor
    pool: Pool
    cluster: Tensor

    @staticmethod
    def of(pool: Pool, features: Tensor, rng: Stream) -> "Diversity":
        cluster = torch.full((len(pool),), -1)
        faults = pool.wrong.nonzero().flatten()
        cluster[faults] = k_means(features[faults], CLUSTERS, rng).cpu()
        return Diversity(features, pool, cluster)

    def __call__(self, order: Tensor) -> Params:
        first = order[: size_of(FIRST, len(order))]
        faults = first[self.pool.wrong[first]]
        return {
            "volume": log_volume(self.features[order[:VOLUME]]),
            "pairs": len(torch.stack([self.pool.y[faults], self.pool.pred[faults]], 1).unique(dim=0)),
            "clusters": len(self.cluster[faults].unique()),
        }

    def whole(self) -> Params:
        """What there is in the pool."""
        faults = self.pool.wrong
        pairs = torch.stack([self.pool.y, self.pool.pred], 1)[faults].unique(dim=0)
        return {"pairs": len(pairs), "clusters": len(self.cluster[faults].unique())}


def features_of(witness: Target, x: Tensor, chunks: Chunks, layer: str = LAYER) -> Tensor:
    """What the net makes of the inputs in one layer, flattened, each of length 1, (n, d)."""
    taken: list[Tensor] = []
    module = behind(module_of(witness)).get_submodule(layer)

    def ask(block: Tensor) -> Tensor:
        taken.clear()
        hook = module.register_forward_hook(lambda _net, _given, out: taken.append(out.detach().flatten(1)))
        try:
            with torch.no_grad():
                witness(block.to(witness.device))
        finally:
            hook.remove()
        return torch.nn.functional.normalize(taken[0].float(), dim=1)

    with witness.ready():
        return chunks.map(ask, x)


def log_volume(rows: Tensor) -> float | None:
    """The logarithm of the determinant of V Vᵀ, V the rows (k, d); None where they are linearly dependent.

    >>> log_volume(torch.eye(3)), log_volume(torch.ones(2, 3))
    (0.0, None)
    """
    given = rows.double()
    _, value = torch.linalg.slogdet(given @ given.T)
    full = int(torch.linalg.matrix_rank(given)) == len(given) if len(given) else False
    return round(float(value), 4) if full and bool(value.isfinite()) else None


def k_means(points: Tensor, clusters: int, rng: Stream, rounds: int = 30) -> Tensor:
    """The cluster of each of the points (n, d), by Lloyd's rounds from centres far from each other (k-means++)."""
    count = min(clusters, len(points))
    if count == 0:
        return torch.empty(0, dtype=torch.int64)
    draw = rng.generator()
    chosen = [int(torch.randint(len(points), (), generator=draw))]
    away = torch.full((len(points),), torch.inf, dtype=torch.float64)
    for _ in range(count - 1):
        away = away.minimum((points - points[chosen[-1]]).double().square().sum(1).cpu())
        if not bool(away.sum() > 0):
            break  # all points lie on centres
        chosen.append(int(torch.multinomial(away, 1, generator=draw)))
    centres = points[chosen].clone()
    nearest = torch.cdist(points, centres).argmin(1)
    for _ in range(rounds):
        sums = torch.zeros_like(centres).index_add_(0, nearest, points)
        sizes = nearest.bincount(minlength=len(centres))
        centres = torch.where(sizes[:, None] > 0, sums / sizes.clamp_min(1)[:, None], centres)
        before, nearest = nearest, torch.cdist(points, centres).argmin(1)
        if torch.equal(before, nearest):
            break
    return nearest


# ---- two sets of numbers ----


def a12(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Vargha and Delaney's A12: how likely a number of the first is above one of the second, ties half.

    >>> a12([3, 4], [1, 2]), a12([1, 2], [1, 2]), a12([1, 3], [2]), a12([], [1])
    (1.0, 0.5, 0.5, None)
    """
    if not first or not second:
        return None
    pairs = [(a > b) + (a == b) / 2 for a in first for b in second]
    return mean(pairs)
