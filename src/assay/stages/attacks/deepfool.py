"""DeepFool: step to the nearest boundary of the linearised net until the class changes."""

import torch
from torch import Tensor

from assay.core import norms
from assay.core.aims import aim
from assay.core.errors import UsageError
from assay.core.norms import Norm
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.core.shapes import column
from assay.stages.attacks.gradient import jacobian
from assay.stages.attacks.minimal import check_norm, check_positive, closer, kept
from assay.subjects.target import Target


@register("attack", paper="Moosavi-Dezfooli et al. 2016", needs=("grad",))
def deepfool(
    target: Target,
    x: Tensor,
    y: Tensor,
    *,
    rng: Rows,
    eps: float | None = None,
    norm: str = "l2",
    steps: int = 50,
    classes: int = 10,
    overshoot: float = 0.02,
    final_search: int = 3,
) -> Tensor:
    """Small l2 or linf changes by steps to the nearest boundary of the linearised net.

    The rivals are the ``classes`` best of the clean input, its own among them: one backward pass for each other one in
    each step. ``final_search`` is the number of tries to come back nearer at the end.

    Formula: xₜ₊₁ = xₜ + (d + overshoot·(d + ‖xₜ − x‖)) · s(∇fₖ), d = |fₖ|/‖∇fₖ‖ in the dual norm, fₖ = zₖ − z_y, k
    the class with the smallest d, s as of fgsm.
    """
    chosen = check_norm("deepfool", norm, eps, ("l2", "linf"))
    check_positive("deepfool", steps=steps, overshoot=overshoot)
    if classes < 2:
        raise UsageError(f"deepfool needs 2 classes or more to step between, got {classes}")
    # Paper: ends at the overshot point. Here: goes back towards the clean input as far as it stays fooled, because some
    # forward passes make the change 1 % smaller; final_search=0 is the paper's.
    fooled = aim("margin")
    with target.ready():
        made, won = _walk(target, x, y, chosen, steps, classes, overshoot)
        found = won.nonzero().squeeze(1)
        made[found] = closer(target, x[found], y[found], made[found], fooled, final_search)
    return kept(x, made, won, eps, chosen)


def _walk(
    target: Target, x: Tensor, y: Tensor, norm: Norm, steps: int, classes: int, overshoot: float
) -> tuple[Tensor, Tensor]:
    """The first adversarial points (N, *shape) on the way, and which rows have one (N,)."""
    out, won = x.clone(), torch.zeros(len(x), dtype=torch.bool, device=x.device)
    rows, at = torch.arange(len(x), device=x.device), x
    rivals: Tensor | None = None
    for step in range(steps + 1):
        with torch.no_grad():
            outputs = target(at)
        if rivals is None:
            others = outputs.scatter(1, y[:, None], -torch.inf)
            rivals = others.topk(min(classes, outputs.shape[1]) - 1, 1).indices
        on = (outputs.argmax(1) == y).nonzero().squeeze(1)
        if len(on) < len(rows):
            # Those that go on are written again when they leave, and are lost where they never do.
            out[rows], won[rows] = at, True
            rows, x, y, at, rivals = (t[on] for t in (rows, x, y, at, rivals))
            won[rows] = False
        if step == steps or not len(rows):
            break
        far, grad = _nearest(target, at, y, rivals, norm)
        # Paper: the overshoot is added once, to the sum of all steps, and there are no bounds. Here: each step goes
        # past the boundary by that share of the way so far, because the bounds take part of a step away.
        stride = far + overshoot * (far + norms.size(at - x, norm))
        at = (at + column(stride, x) * norms.steepest(grad, norm)).clamp_(*target.spec.bounds)
    return out, won


def _nearest(target: Target, at: Tensor, y: Tensor, rivals: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
    """Distance (N,) and slope (N, *shape) of the nearest boundary among those with the rivals (N, C)."""
    dual: Norm = "l1" if norm == "linf" else "l2"
    far, slope = at.new_full((len(at),), torch.inf), torch.zeros_like(at)
    for ahead, grad in jacobian(target, at, y, rivals):
        distance = ahead.abs().to(at.dtype) / norms.size(grad, dual)
        nearer = distance < far
        far = torch.where(nearer, distance, far)
        slope = torch.where(column(nearer, at), grad, slope)
    # No slope anywhere: nothing to follow, and infinity times nothing would be NaN.
    return torch.where(far.isfinite(), far, 0.0), slope
