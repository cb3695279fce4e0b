"""The one place where attacks take gradients."""

from collections.abc import Iterator

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
        outputs, gain, grad = outputs + more[0], gain + more[1], grad + more[2]
    if eot > 1:
        outputs, gain, grad = outputs / eot, gain / eot, grad / eot
    return outputs, gain, grad


def _once(target: Target, at: Tensor, y: Tensor, aim: Aim) -> tuple[Tensor, Tensor, Tensor]:
    with torch.enable_grad():
        at = at.detach().requires_grad_()
        outputs = target(at)
        gain = aim.gain(outputs, y)
    return outputs.detach(), gain.detach(), back(gain, at, torch.ones_like(gain))


def jacobian(target: Target, at: Tensor, y: Tensor, rivals: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """For each column of ``rivals`` (N, C): how far its class is ahead of ``y``, (N,), and the gradient of that.

    One forward pass and C backward passes, one gradient (N, *shape) in memory at a time: repeating the rows or batching
    the backward passes measured no faster on a CPU beyond a few rows, and needs C times the memory.
    """
    with torch.enable_grad():
        at = at.detach().requires_grad_()
        outputs = target(at)
    own = y[:, None]
    for k, rival in enumerate(rivals.unbind(1), 1):
        other = rival[:, None]
        ahead = (outputs.detach().gather(1, other) - outputs.detach().gather(1, own)).squeeze(1)
        direction = torch.zeros_like(outputs).scatter_(1, other, 1.0).scatter_(1, own, -1.0)
        yield ahead, back(outputs, at, direction, keep=k < rivals.shape[1])


def back(outputs: Tensor, at: Tensor, direction: Tensor, *, keep: bool = False) -> Tensor:
    """The gradient of ``outputs · direction`` at the inputs; ``keep`` the graph for another one.

    An entry without a usable slope stays where it is, and a net that rounds or compares its inputs has no path back to
    them at all: there the gradient is zero. `checks` warns where there are many.
    """
    grad = None
    if outputs.requires_grad:
        (grad,) = torch.autograd.grad(outputs, at, direction, retain_graph=keep, allow_unused=True)
    if grad is None:
        return torch.zeros_like(at)
    # Out of place where autograd gave one number for many entries.
    return grad.nan_to_num_(0.0, 0.0, 0.0) if grad.is_contiguous() else grad.nan_to_num(0.0, 0.0, 0.0)
