"""Seeds that all models agree on."""

from dataclasses import replace

import torch

from assay.core.cases import UNLABELLED, Cases
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("seeder", paper="DeepXplore 2017", needs=("label", "siblings"))
def agreed(bench: Bench, cases: Cases, *, rng: Stream) -> Cases:
    """The cases to which the target and the other models give the same class, and that their label where they have one.

    Unlabelled ones take the class as label.
    """
    # Paper: labels are not looked at, and seeds on which the models differ already are reported. Here: a seed that is
    # known to be wrong is left out, as everywhere, and one that needs no search is no find of the search.
    own = bench.logits(cases).argmax(1)
    same = (bench.others(cases).argmax(2).to(own.device) == own[:, None]).all(1).to(cases.y.device)
    own = own.to(cases.y.device)
    y = torch.where(cases.y == UNLABELLED, own, cases.y)
    return replace(cases, y=y)[same & (own == y)]
