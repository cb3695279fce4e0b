"""Seeds where the loss has a slope."""

import torch

from assay.core import norms
from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.stages.seeds.correct import correct
from assay.subjects.bench import Bench


@register("seeder", paper="public code of RobOT", needs=("label", "grad"))
def steep(bench: Bench, cases: Cases, *, rng: Stream, count: int = 1000, least: float = 0.001) -> Cases:
    """Of ``count`` random cases those the target gets right with a loss gradient longer than ``least``."""
    drawn = torch.randperm(len(cases), generator=rng.generator())[:count].sort().values
    some = correct(bench, cases[drawn.to(cases.x.device)], rng=rng)
    return some[(norms.size(bench.gradient(some), "l2") > least).to(some.x.device)]
