"""Borrowing a module: evaluation mode without weight gradients, and back exactly as it was."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[nn.Module]:
    """The module in evaluation mode, its weights not asking for gradients; given back bit-identical, also on error.

    Restored: every ``training`` flag, ``requires_grad``, ``.grad`` and every buffer, written, replaced or added
    meanwhile. Buffers are always copied back: batch normalisation writes its statistics without raising the
    tensor's version, so there is no cheaper way to tell.
    """
    flags = [(m, m.training) for m in module.modules()]
    weights = [(p, p.requires_grad, p.grad) for p in module.parameters()]
    buffers = [(m, dict(m._buffers)) for m in module.modules()]
    contents = [(b, b.detach().clone()) for b in module.buffers()]
    try:
        module.eval()
        for weight, _, _ in weights:
            weight.requires_grad_(False)
        yield module
    finally:
        for m, training in flags:
            m.training = training
        for weight, needs_grad, grad in weights:
            weight.requires_grad_(needs_grad)
            weight.grad = grad
        for m, own in buffers:
            m._buffers.clear()
            m._buffers.update(own)
        for buffer, content in contents:
            buffer.data.copy_(content)


def changed_by(module: nn.Module, call: Callable[[], object]) -> bool:
    """Whether a call changes a tensor that the module holds: writes, replaces or adds a buffer, a weight or another."""
    before = _held(module)
    versions = {place: tensor._version for place, tensor in before.items()}
    contents = {
        place: tensor.detach().clone() for place, tensor in before.items() if not isinstance(tensor, nn.Parameter)
    }
    call()
    after = _held(module)
    return after.keys() != before.keys() or any(
        tensor is not before[place]
        or tensor._version != versions[place]
        or (place in contents and not torch.equal(tensor, contents[place]))  # see above: not all who write say so
        for place, tensor in after.items()
    )


def _held(module: nn.Module) -> dict[tuple[int, str], Tensor]:
    return {
        (number, name): value
        for number, part in enumerate(module.modules())
        for name, value in (*part._buffers.items(), *part._parameters.items(), *vars(part).items())
        if isinstance(value, Tensor)
    }
