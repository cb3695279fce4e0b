"""Waiting for another process to be at work in a run."""

import json
import time
from pathlib import Path
from typing import Protocol


class Process(Protocol):
    """A process of one's own, or one in a nursery."""

    pid: int

    def poll(self) -> int | None: ...


def at_work(child: Process, folder: Path) -> bool:
    """Wait until the process holds the lock; False where it ended before."""
    while child.poll() is None:
        try:
            if json.loads((folder / "LOCK").read_text())["pid"] == child.pid:
                return True
        except (OSError, ValueError, KeyError):
            pass  # not there yet, or just being written
        time.sleep(0.005)
    return False
