"""DeepHunter's bound on what a mutant may be."""

import torch
from torch import Tensor

from assay.core import changes
from assay.core.cases import Cases
from assay.core.registry import register
from assay.core.shapes import column
from assay.subjects.bench import Bench


@register("filter", paper="DeepHunter 2019")
def few_or_small(bench: Bench, cases: Cases, *, alpha: float = 0.02, beta: float = 0.2) -> Tensor:
    """Fewer than ``alpha`` of the values differ from the reference, or none by ``beta`` of the range or more.

    The reference is the column ``line_ref`` where the mutator ``transform`` has moved it, else the seed; what had
    changed before it moved (``line_l0``, ``line_linf``) is added to the count, or taken where it is larger.
    """
    seed, info = cases.info["seed_x"], cases.info
    if not len(cases):
        return torch.zeros_like(cases.origin, dtype=torch.bool)
    reference = seed
    if "line_ref" in info:
        reference = torch.where(column(info["line_affine"], seed), info["line_ref"], seed)
    bounds = bench.target.spec.bounds
    count, largest = changes.changes(cases.x, reference, bounds)
    if "line_l0" in info:
        count, largest = count + info["line_l0"], torch.maximum(largest, info["line_linf"])
    return changes.few_or_small(count, largest, seed[0].numel(), bounds, alpha, beta)
