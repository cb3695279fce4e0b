"""How long the numbers are: half the length where speed is asked for, float32 as it is written where it counts."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def full_precision() -> Iterator[None]:
    """Float32 as it is written, whatever is asked for around it.

    A GPU's convolutions and products otherwise may drop bits of their factors (TF32).
    """
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
        try:
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
            yield
        finally:
            torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


@contextmanager
def float_precision(device: torch.device) -> Iterator[None]:
    """Float32 as torch takes it on this device, whatever shorter numbers are asked for around it."""
    with torch.autocast(device.type, enabled=False):
        yield


@contextmanager
def half_precision(device: torch.device, *, asked: bool = True) -> Iterator[None]:
    """Products and convolutions in bfloat16 (AMP), weights and sums in float32; nothing where it is not ``asked``."""
    if not asked:
        yield
        return
    # Without its memory of shortened weights: an optimiser changes them between two passes of one block.
    with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
        yield


def halved(device: torch.device) -> bool:
    """Whether numbers are halved here and now."""
    return torch.is_autocast_enabled(device.type)
