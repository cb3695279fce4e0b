"""Waiting for another process to be at work in a run."""

import json
import subprocess
import time
from pathlib import Path


def at_work(child: subprocess.Popen[bytes], folder: Path) -> bool:
    """Wait until the process holds the lock; False where it ended before."""
    while child.poll() is None:
        try:
            if json.loads((folder / "LOCK").read_text())["pid"] == child.pid:
                return True
        except (OSError, ValueError, KeyError):
            pass  # not there yet, or just being written
        time.sleep(0.005)
    return False
