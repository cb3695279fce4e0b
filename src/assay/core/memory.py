"""How much memory this process holds, read without stopping anything."""

import os
import sys
from pathlib import Path


def resident() -> int | None:
    """Bytes of main memory that are ours right now; None where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def on_gpu() -> int | None:
    """Bytes that torch holds on all GPUs; None where it holds none. Nothing is loaded to find out, and no kernel is
    waited for.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return sum(torch.cuda.memory_reserved(device) for device in range(torch.cuda.device_count())) or None


def memory() -> dict[str, int]:
    """What is known of both, by name."""
    told = {"rss": resident(), "gpu": on_gpu()}
    return {name: value for name, value in told.items() if value is not None}


def size(count: float) -> str:
    """Bytes as people read them.

    >>> size(512), size(3_600_000), size(1.25e9)
    ('512 B', '3.6 MB', '1.2 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
