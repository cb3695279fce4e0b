"""Seeds the target gets right."""

from dataclasses import replace

import torch

from assay.core.cases import UNLABELLED, Cases
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("seeder", needs=("label",))
def correct(bench: Bench, cases: Cases, *, rng: Stream) -> Cases:
    """The cases whose predicted class is their label; unlabelled ones take the prediction as label."""
    predicted = bench.logits(cases).argmax(1).to(cases.y.device)
    y = torch.where(cases.y == UNLABELLED, predicted, cases.y)
    return replace(cases, y=y)[predicted == y]
