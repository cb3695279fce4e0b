"""What memory the process keeps: freed blocks, which every step wants again; few compiled convolutions."""

import ctypes
import functools
import os

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_MMAP_THRESHOLD = 32 << 20  # what glibc accepts on 64-bit machines

_KERNELS = 128  # a pass takes about five for each shape of layer, so this does for a ResNet-18


@functools.cache
def keep_blocks() -> bool:
    """Ask glibc to keep blocks for reuse; False where the C library is another one. Engines call it, imports never.

    Left alone, it gives large blocks back at once, and every step pays page faults for new ones.
    """
    try:
        libc = ctypes.CDLL("libc.so.6")
        trim = libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30)
        return bool(trim and libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD))
    except (OSError, AttributeError):
        return False


def few_kernels() -> None:
    """Let oneDNN keep few of the convolutions it compiles; what the user has set stays.

    It compiles one for each layer and size of a batch and would keep 1024 of them, and an attack's active set takes
    every size. It reads the limit at the first convolution of the process, after which this changes nothing.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(_KERNELS))
