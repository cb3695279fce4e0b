"""K-multisection selection (KM-ST): evenly from the sections of a score's range."""

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.stages.selectors.ranking import scored, turns
from assay.subjects.bench import Bench


@register("selector", paper="RobOT 2021")
def k_multisection(
    bench: Bench,
    cases: Cases,
    k: int,
    *,
    rng: Stream,
    score: str = "fol",
    sections: int = 100,
    eps: float | None = None,
    norm: str = "",
) -> Tensor:
    """k cases drawn evenly from ``sections`` equally wide sections of the range from smallest to largest score.

    A section with too few cases is taken whole, and what it lacks is drawn evenly from the others.

    Formula: sections of width (max − min)/sections; k/sections drawn from each.
    """
    if sections < 1:
        raise UsageError(f"k_multisection: sections must be at least 1, got {sections}")
    values = scored(bench, cases, score, eps, norm)
    section = section_of(values, sections)
    # Paper: k/sections cases from each section, which need not be a whole number nor be there. Here: the sections take
    # turns, and who goes first in a turn is drawn, because a last, incomplete turn must not prefer low scores.
    turn = turns(section, torch.randperm(len(cases), generator=rng.at("cases").generator()))
    lot = torch.randperm(sections + 1, generator=rng.at("sections").generator())[section]
    turn += values.isnan() * len(cases)  # after all others
    return (turn * (sections + 1) + lot).argsort()[:k]


def section_of(values: Tensor, sections: int) -> Tensor:
    """The section of each score, the last one closed on the right; infinite scores lie at the ends, NaN has its own."""
    finite = values[values.isfinite()]
    low, high = (finite.min(), finite.max()) if len(finite) else (values.new_zeros(()), values.new_zeros(()))
    share = (values.clamp(low, high) - low) / (high - low).clamp_min(torch.finfo(values.dtype).tiny)
    place = (share * sections).floor().clamp_max(sections - 1)
    return torch.where(values.isnan(), sections, place).long()
