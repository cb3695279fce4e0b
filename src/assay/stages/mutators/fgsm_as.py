"""The fast gradient sign method, as large as what another mutator does."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.stages.mutators.as_long import lengths, moved
from assay.subjects.bench import Bench


@register("mutator", paper="Goodfellow, Shlens, Szegedy 2015", needs=("grad", "start"), gradients=1)
def fgsm_as(bench: Bench, cases: Cases, *, rng: Rows, of: str = "cyclegan") -> Tensor:
    """Along the sign of the loss gradient, as far in l2 inside the bounds as the mutator ``of`` moves the case.

    Formula: x' = x + λ·∇L(x, y), clipped, λ such that ‖x' − x‖₂ = ‖of(x) − x‖₂.
    """
    far = lengths(bench, cases, of, rng.at(0))
    return moved(cases.x, bench.gradient(cases).to(cases.x.device).sign(), far, bench.target.spec.bounds)
