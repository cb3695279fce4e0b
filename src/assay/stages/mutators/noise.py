"""Random noise: the control that every guided mutator must beat."""

from torch import Tensor

from assay.core import norms
from assay.core.cases import Cases
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("mutator")
def noise(bench: Bench, cases: Cases, *, rng: Rows, eps: float = 0.1, norm: str = "linf") -> Tensor:
    """A uniform random point of the ball of radius eps around each input, inside the bounds.

    Formula: x' = clip(x + u), u uniform in the ball of eps.
    """
    spec = bench.target.spec
    offset = norms.random_point(spec.shape, eps, norms.check(norm, eps), rng)
    return (cases.x + offset.to(cases.x.dtype)).clamp_(*spec.bounds)
