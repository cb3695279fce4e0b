"""Calls to the disk that fail, or in which the process dies: what a child of a nursery runs first.

Only calls that touch files below one folder count, in the order in which they come. Every call is noted in a file, so
that a test knows how many there are to break.
"""

import errno
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay.cli import run
from commands import Nursery

CALLS = ("open", "write", "fsync", "ftruncate", "replace", "rename", "mkdir", "unlink", "utime")
KILLED, KILLED_AFTER, KILLED_WITHIN, SHORT = "killed", "killed after", "killed within", "short"
_AT_ONCE = 12
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # as the journal is: nothing can be lost
_FULL = ("ENOSPC", "EDQUOT")
_FILLED = ("open", "write", "mkdir")  # what a full disk refuses; the other calls need no room


def breaking(root: Path, log: Path, at: int = 0, how: str = "", *, for_good: bool = False) -> str:
    """The code for a child: its ``at``-th call fails with the error ``how`` names (ENOSPC …), and all later ones that
    such a disk refuses where it is ``for_good``; or the process dies there. Without ``at`` they are only noted.
    """
    here = str(Path(__file__).parent)
    told = f"{str(root)!r}, {str(log)!r}, {at}, {how!r}, {for_good}"
    return f"import sys; sys.path.insert(0, {here!r}); import injected; injected.install({told})"


def install(root: str, log: str, at: int, how: str, for_good: bool) -> None:
    """Put the broken calls in place of those of ``os``."""
    real = {name: getattr(os, name) for name in CALLS}
    notes = real["open"](log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    count = 0

    def within(place: Any) -> str:
        try:
            path = str(Path(f"/proc/self/fd/{place}").readlink() if isinstance(place, int) else Path(place).absolute())
        except OSError:
            return ""
        return path if path.startswith(root) else ""

    def broken(name: str) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            nonlocal count
            path = within(given[0])
            if not path or (name == "open" and given[1] == _READING):
                return real[name](*given, **more)
            count += 1
            real["write"](notes, f"{name} {os.path.relpath(path, root)}\n".encode())
            if count == at or (for_good and 0 < at <= count and (how not in _FULL or name in _FILLED)):
                return _break(real, name, how, given, more)
            return real[name](*given, **more)

        return call

    for name in CALLS:
        setattr(os, name, broken(name))


def _break(real: dict[str, Callable[..., Any]], name: str, how: str, given: tuple[Any, ...], more: Any) -> Any:
    if how in (SHORT, KILLED_WITHIN) and name == "write":
        written = real["write"](given[0], bytes(given[1])[: max(1, len(given[1]) // 2)])
        if how == SHORT:
            return written
    elif how == SHORT:
        return real[name](*given, **more)
    if how.startswith("SIG"):  # pressed once or twice, and then the call goes its way
        for press in how.split("+"):
            os.kill(os.getpid(), getattr(signal, press))
        return real[name](*given, **more)
    if how == KILLED_AFTER:
        real[name](*given, **more)
    if how in (KILLED, KILLED_AFTER, KILLED_WITHIN):
        os.kill(os.getpid(), signal.SIGKILL)
    code = getattr(errno, how)
    raise OSError(code, os.strerror(code))


def sweep(root: str, place: str, arguments: list[str], points: list[tuple[int, str]]) -> None:
    """Run ``assay ARGUMENTS`` broken at each point, then once more whole, each in a process of its own, forked where
    everything was done once: ``{}`` in the arguments is the name of the point. Notes in ``place`` how it went.
    """

    def forked(number: int, how: str, name: str, *said: str) -> dict[str, Any]:
        err = Path(place) / f"{name}.err"
        pid = os.fork()
        if not pid:
            _alone(err)
            code = 70
            try:
                install(root, str(Path(place) / f"{name}.log"), number, how, False)
                code = run([part.replace("{}", name) for part in said])
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return {"code": code, "err": err.read_text(errors="replace")}

    run([part.replace("{}", "warm") for part in arguments])
    told = []
    for number, how in points:
        name = point_name(number, how)
        broken = forked(number, how, name, *arguments)
        log = Path(root) / name / "journal.jsonl"
        journal, there = (log.read_text(), True) if log.exists() else ("", False)
        left = [str(path) for path in Path(root).rglob("*.tmp")]
        status = forked(0, "", f"{name}-status", "status", name)
        again = forked(0, "", name, *arguments)
        told.append({"name": name, "broken": broken, "journal": journal, "there": there, "left": left})
        told[-1] |= {"status": status, "again": again}
    (Path(place) / "told.json").write_text(json.dumps(told))
    os._exit(0)


def point_name(number: int, how: str) -> str:
    return f"p{number}-{how.replace(' ', '-').replace('+', '-').lower()}"


def _alone(err: Path) -> None:
    handle = os.open(err, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream in (1, 2):
        os.dup2(handle, stream)


def swept(home: Nursery, root: Path, place: Path, arguments: list[str], points: list[tuple[int, str]]) -> list[Any]:
    """How each point of a sweep went, done by children of that nursery, a few points each."""
    place.mkdir(exist_ok=True)
    here, told = str(Path(__file__).parent), list[Any]()
    code = f"import sys; sys.path.insert(0, {here!r}); import injected; "
    for start in range(0, len(points), _AT_ONCE):
        some = points[start : start + _AT_ONCE]
        before = f"{code}injected.sweep({str(root)!r}, {str(place)!r}, {arguments!r}, {some!r})"
        ended = home.run("env", before=before)
        assert ended.code == 0, ended.err
        told += json.loads((place / "told.json").read_text())
    return told


def calls(home: Nursery, root: Path, log: Path, *arguments: str) -> list[str]:
    """The calls of a command that nothing disturbs, in order: ``write runs/a/LOCK``."""
    home.run(*arguments, before=breaking(root, log)).ended(0)
    return log.read_text().splitlines()
