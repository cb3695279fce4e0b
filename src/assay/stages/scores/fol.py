"""First-order loss: how much the loss can still rise, by its gradient, within the ball around the seed."""

import torch
from torch import Tensor

from assay.core import norms
from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.registry import register
from assay.subjects.bench import Bench

# Public code: added to every entry against 0/0 in the slope of the length, which it does not prevent: its square
# underflows in float32 where subnormal numbers are taken as 0.
CODE_OFFSET = 1e-20


@register("score", paper="RobOT 2021", needs=("grad",))
def fol(
    bench: Bench,
    cases: Cases,
    *,
    eps: float | None = None,
    norm: str = "l2",
    exact: bool = False,
    box: bool = False,
    safe: bool = True,
) -> Tensor:
    """The most that the linearised loss can still gain in the ball around the seed: 0 where an attack has converged.

    ``norm=l2`` is the paper's eps·‖g‖₂ (in place of eps the width of the inputs' range where it is not given);
    ``exact`` centres its ball on the seed, as linf does. ``box`` also keeps to the target's bounds, for linf. A case
    without column ``seed_x`` is its own seed.
    With ``safe`` off the length is that of the public code, ‖g + 1e-20‖₂, for the paper's form only.

    Formula: linf: Σⱼ eps·|gⱼ| − (x − seed)ⱼ·gⱼ, g = ∇L(x, y); l2: eps·‖g‖₂, less ⟨x − seed, g⟩ where exact.
    """
    _check(eps, norm, exact, box, safe)
    slope = bench.gradient(cases)
    if norm == "l2" and not exact:
        # Paper: the maximum over the ball around the seed. Here: as printed, a scaled gradient norm, because its proof
        # centres the ball on the case; the inner product with the way from the seed is lost (exact=True has it).
        length = norms.safe_length(slope) if safe else norms.size(slope + CODE_OFFSET, "l2")
        # Without eps in units of the range, as steps are: else its weight against other scores would go by the range.
        return length * (bench.target.spec.bounds[1] - bench.target.spec.bounds[0] if eps is None else eps)
    assert eps is not None  # _check has seen to it
    x = cases.x.to(slope.device)
    seed = cases.parent.detach().to(slope.device)
    if box:
        # Paper: the bounds of the inputs are ignored. Here: on request they are kept, because at the edge of the box
        # the gradient points where no case can go.
        low, high = norms.box(seed, eps, "linf", bench.target.spec.bounds)
        return torch.maximum(slope * (high - x), slope * (low - x)).flatten(1).sum(1)
    return norms.first_order(slope, x - seed, eps, norms.check(norm))


def _check(eps: float | None, norm: str, exact: bool, box: bool, safe: bool) -> None:
    norms.check(norm, eps)
    if norm not in ("linf", "l2"):
        raise UsageError(f"fol is defined for norm linf and l2, got {norm!r}")
    if box and norm != "linf":
        raise UsageError(f"fol(box=true) is defined for norm=linf, got {norm!r}; leave box out or set norm=linf")
    if not safe and (exact or norm != "l2"):
        raise UsageError("fol(safe=false) is defined for norm=l2 and exact=false; leave safe out, or set both so")
    if eps is None and (exact or norm == "linf"):
        form = f"norm={norm}, exact=true" if exact else f"norm={norm}"
        raise UsageError(f"fol({form}) needs eps, the radius of the ball; give --eps or fol(eps=0.1)")
