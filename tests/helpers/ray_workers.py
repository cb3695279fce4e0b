"""The worker processes of a Ray that a process has started: to count them, and to kill them."""

import os
import signal
from pathlib import Path


def workers_of(root: int) -> list[int]:
    """The processes of actors below that one: other tests have their own."""
    parents, found = {}, []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()
            named = (folder / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        parents[int(folder.name)] = int(state[1])
        if named.startswith(b"ray::Actor"):
            found.append(int(folder.name))
    return sorted(pid for pid in found if root in _above(pid, parents))


def kill_one(root: int) -> bool:
    """Kill -9 the oldest; False where there is none."""
    found = workers_of(root)
    if found:
        os.kill(found[0], signal.SIGKILL)
    return bool(found)


def _above(pid: int, parents: dict[int, int]) -> set[int]:
    line = set()
    while (pid := parents.get(pid, 0)) > 1:
        line.add(pid)
    return line
