"""The worker processes of a Ray that a process has started: to count them and what they do, and to kill them."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from assay.engines.actors import RayHands


class Worked:
    """Which jobs came back done from which actor; each is a process of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._by: dict[str, set[int]] = {}
        calls: dict[Any, str] = {}
        step, get = RayHands.step, RayHands.get

        def asked(hands: RayHands, actor: Any, jobs: list[tuple[int, Any]]) -> Any:
            call = step(hands, actor, jobs)
            calls[call] = actor._actor_id.hex()
            return call

        def got(hands: RayHands, call: Any) -> Any:
            told = get(hands, call)
            if call in calls:  # else it is the one that made the actor ready
                self._by.setdefault(calls[call], set()).update(number for number, _ in told[0])
            return told

        monkeypatch.setattr(RayHands, "step", asked)
        monkeypatch.setattr(RayHands, "get", got)

    def take(self) -> tuple[int, int]:
        """How many jobs were done since the last call, and by how many actors; what was done twice counts once."""
        jobs, actors = set().union(*self._by.values()), sum(bool(done) for done in self._by.values())
        self._by = {}
        return len(jobs), actors


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has asked for its end yet, which still has its number, has."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def workers_of(root: int) -> list[int]:
    """The processes of actors below that one that are alive: other tests have their own."""
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
        if named.startswith(b"ray::Actor") and state[0] not in "ZX":
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
