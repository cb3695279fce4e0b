"""Seeds the target gets right."""

from dataclasses import replace

import torch

from assay.core.cases import UNLABELLED, Cases
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("seeder", needs=("label",))
def correct(bench: Bench, cases: Cases, *, rng: Stream, count: int | None = None) -> Cases:
    """The cases whose predicted class is their label; unlabelled ones take the prediction as label.

    With ``count`` so many of them at most, drawn at random, in their order.
    """
    predicted = bench.logits(cases).argmax(1).to(cases.y.device)
    y = torch.where(cases.y == UNLABELLED, predicted, cases.y)
    right = replace(cases, y=y)[predicted == y]
    if count is None or count >= len(right):
        return right
    if count < 1:
        raise UsageError(f"correct: count must be at least 1, got {count}")
    drawn = torch.randperm(len(right), generator=rng.generator())[:count].sort().values
    return right[drawn.to(right.x.device)]
