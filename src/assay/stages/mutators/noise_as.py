"""Noise as large as what another mutator does: the control of CAGFuzz's generator."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.stages.mutators.as_long import lengths, moved
from assay.subjects.bench import Bench


@register("mutator", needs=("start",))
def noise_as(bench: Bench, cases: Cases, *, rng: Rows, of: str = "cyclegan") -> Tensor:
    """A random direction for each case, as far in l2 inside the bounds as the mutator ``of`` moves it.

    Formula: x' = x + λ·N(0, 1), clipped, λ such that ‖x' − x‖₂ = ‖of(x) − x‖₂.
    """
    far = lengths(bench, cases, of, rng.at(0))
    way = rng.at(1).normal(tuple(cases.x.shape[1:]))
    return moved(cases.x, way, far, bench.target.spec.bounds)
