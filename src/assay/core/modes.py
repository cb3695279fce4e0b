"""Borrowing a module: evaluation mode without weight gradients, and back exactly as it was."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


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
