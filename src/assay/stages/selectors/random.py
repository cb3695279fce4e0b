"""Random selection: the control beside every other selector."""

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("selector")
def random(bench: Bench, cases: Cases, k: int, *, rng: Stream) -> Tensor:
    """k distinct rows drawn uniformly; all of them where there are fewer.

    Formula: k rows uniformly without replacement.
    """
    return torch.randperm(len(cases), generator=rng.generator())[:k]
