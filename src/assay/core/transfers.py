"""Tensors from one device to another: on the way to or from a GPU by pinned memory, and waited for once."""

from collections.abc import Sequence

import torch
from torch import Tensor

PINNED = 1 << 28  # bytes that are copied at once by way of pinned memory


def moved(tensors: Sequence[Tensor], device: torch.device | str) -> list[Tensor]:
    """The tensors on that device, whole when this returns.

    A copy from memory that the system may page out is made piece by piece and waited for, one tensor after the other.
    """
    there = torch.device(device)
    if there.type == "cuda":
        return [_up(tensor, there) for tensor in tensors]
    gone = {tensor.device for tensor in tensors if tensor.is_cuda}
    if there.type != "cpu" or not gone or sum(map(_bytes, tensors)) > PINNED:
        return [tensor.to(there) for tensor in tensors]
    down = [going_down(tensor) for tensor in tensors]
    for place in gone:
        torch.cuda.current_stream(place).synchronize()
    # Pinned memory is scarce and never given back to the system: what is kept lies elsewhere.
    return [pinned if pinned is tensor else pinned.clone() for pinned, tensor in zip(down, tensors, strict=True)]


def going_down(tensor: Tensor) -> Tensor:
    """A copy in pinned memory that is whole once the GPU's stream has come so far; of one on the CPU, itself."""
    if not tensor.is_cuda:
        return tensor
    return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)


def _up(tensor: Tensor, device: torch.device) -> Tensor:
    """On the GPU; whatever reads it there comes after, and the pinned copy stays until then."""
    if tensor.is_cuda or not 0 < _bytes(tensor) <= PINNED:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def moved_one(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The same for one tensor."""
    return moved([tensor], device)[0]
