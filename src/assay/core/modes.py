"""Borrowing a module: evaluation mode without weight gradients, and back exactly as it was."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[nn.Module]:
    """The module in evaluation mode, its weights not asking for gradients; given back bit-identical, also on error.

    Restored: every ``training`` flag, ``requires_grad``, ``.grad`` and every buffer that was written or replaced
    meanwhile (a net may keep counters even in evaluation mode).
    """
    flags = [(m, m.training) for m in module.modules()]
    weights = [(p, p.requires_grad, p.grad) for p in module.parameters()]
    buffers = [
        (m, name, b, b.detach().clone(), _version(b))
        for m in module.modules()
        for name, b in m._buffers.items()
        if b is not None
    ]
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
        for m, name, buffer, content, version in buffers:
            m._buffers[name] = buffer
            if version is None or buffer._version != version:
                buffer.data.copy_(content)


def _version(buffer: Tensor) -> int | None:
    """How often the tensor was written to, or None where torch does not count (tensors made in inference mode)."""
    return None if buffer.is_inference() else buffer._version
