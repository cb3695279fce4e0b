"""The order of a net's weights in memory. Convolutions of a CPU, and those in bfloat16, are fast with channels last."""

import torch
from torch import Tensor, nn

from assay.core.modes import eval_mode


def channels_last(net: nn.Module, x: Tensor) -> nn.Module:
    """The net itself with its weights in that order; as it was where it has no convolution or fails on inputs so.

    A net may look at what its convolutions give as if it lay in the usual order (``view``), and that is an error then.
    """
    if x.dim() != 4 or not len(x) or not has_convolutions(net):
        return net
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs
    try:
        with torch.random.fork_rng([]), torch.no_grad(), eval_mode(net):
            net(x[:1])
    except RuntimeError:
        return usual(net)
    return net


def usual(net: nn.Module) -> nn.Module:
    """The net itself with its weights in the usual order."""
    net.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]  # torch's stubs
    return net


def has_convolutions(net: nn.Module) -> bool:
    """Whether there is anything that the order could make faster."""
    return any(isinstance(part, nn.Conv2d) for part in net.modules())
