"""The one place where attacks take gradients."""

import torch
from torch import Tensor

from assay.core.aims import Aim
from assay.subjects.target import Target


def uphill(target: Target, at: Tensor, y: Tensor, aim: Aim, eot: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs (N, K), gain (N,) and its gradient (N, *shape), all detached, from one forward and one backward pass.

    ``eot`` above 1 asks a randomised target so often and averages (expectation over its transformations).
    """
    outputs, gain, grad = _once(target, at, y, aim)
    for _ in range(1, eot):
        more = _once(target, at, y, aim)
        outputs, gain, grad = outputs + more[0], gain + more[1], grad.add_(more[2])
    if eot > 1:
        outputs, gain, grad = outputs / eot, gain / eot, grad.div_(eot)
    # An entry without a usable slope stays where it is; `checks` warns where there are many.
    return outputs, gain, grad.nan_to_num_(0.0, 0.0, 0.0)


def _once(target: Target, at: Tensor, y: Tensor, aim: Aim) -> tuple[Tensor, Tensor, Tensor]:
    with torch.enable_grad():
        at = at.detach().requires_grad_()
        outputs = target(at)
        gain = aim.gain(outputs, y)
        (grad,) = torch.autograd.grad(gain.sum(), at)
    return outputs.detach(), gain.detach(), grad
