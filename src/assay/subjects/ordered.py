"""The order of a net's weights in memory: convolutions are faster with channels last, on a CPU and in bfloat16."""

import torch
from torch import nn

KNOWN = ("torch.nn.modules.", "torchvision.models.", "torchvision.ops.", "assay.subjects.")
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def can_be_reordered(net: nn.Module) -> bool:
    """Whether it has convolutions and is built of known layers alone: torch's, torchvision's and those of our zoo.

    Who writes a net's way forward may look at what a convolution gives as if it lay in the usual order (``view``,
    ``as_strided``), in training alone or for some sizes of a batch: it would fail then, or be wrong without a word. So
    may a hook.
    """
    parts = list(net.modules())
    return (
        all(type(part).__module__.startswith(KNOWN) and "forward" not in vars(part) for part in parts)
        and not any(getattr(part, hooks) for part in parts for hooks in HOOKS)
        and any(isinstance(part, nn.Conv2d) for part in parts)
        and all(tensor.dim() < 5 for tensor in (*net.parameters(), *net.buffers()))  # which have no such order
    )


def gains_on_cpu(net: nn.Module) -> bool:
    """Whether another order can and should be had on a CPU: by groups it is slower, and only float32 is measured."""
    return (
        can_be_reordered(net)
        and all(weight.dtype == torch.float32 for weight in net.parameters())
        and all(getattr(part, "groups", 1) == 1 for part in net.modules())
    )


def reorder(net: nn.Module, order: torch.memory_format = torch.channels_last) -> None:
    """Lay the weights of a net anew, with channels last unless told otherwise."""
    net.to(memory_format=order)  # type: ignore[call-overload]  # torch's stubs
