"""A few cases, drawn."""

import torch

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("seeder")
def drawn(bench: Bench, cases: Cases, *, rng: Stream, count: int = 100) -> Cases:
    """So many random cases, right or wrong, in order; all where there are no more."""
    if count < 1:
        raise UsageError(f"drawn: count must be at least 1, got {count}")
    rows = torch.randperm(len(cases), generator=rng.generator())[:count].sort().values
    return cases[rows.to(cases.x.device)]
