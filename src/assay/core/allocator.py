"""Keeping freed memory: glibc gives large blocks back at once, and every step pays page faults for new ones."""

import ctypes
import functools

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_MMAP_THRESHOLD = 32 << 20  # what glibc accepts on 64-bit machines


@functools.cache
def keep_blocks() -> bool:
    """Ask glibc to keep blocks for reuse; False where the C library is another one. Engines call it, imports never."""
    try:
        libc = ctypes.CDLL("libc.so.6")
        trim = libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30)
        return bool(trim and libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD))
    except (OSError, AttributeError):
        return False
