"""One writer per folder: an advisory lock that says who holds it."""

import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from assay.core.errors import UsageError
from assay.core.files import storage_error, write_all

# A lock file of another host is believed this long after its last sign of life: network file systems
# do not always carry flock from host to host.
FOREIGN_SECONDS = 600.0
_BEAT_SECONDS = FOREIGN_SECONDS / 10
_TOLD_SECONDS = 1.0  # a holder writes its name right after it has the lock
_SIZE = 256  # one write covers whatever a holder before left: a reader never meets half of each


class InUse(UsageError):
    """A folder that somebody else is writing to."""


_held: set[tuple[int, int]] = set()


@contextmanager
def folder_lock(folder: Path) -> Iterator[int]:
    """The lock of ``folder``, yielding its file descriptor; a holder elsewhere is a usage error that names it."""
    handle = _taken(folder)
    here = _place(handle)
    try:
        _sign(folder, handle)
        _held.add(here)
        try:
            with _signs_of_life(handle):
                yield handle
        finally:
            _held.discard(here)
            with suppress(OSError):  # a disk that is read-only by now: the flock decides, the name is for people
                os.ftruncate(handle, 0)
            fcntl.flock(handle, fcntl.LOCK_UN)  # a forked child may still have the file open
    finally:
        os.close(handle)


def keep_alive(handle: int) -> None:
    """Show that the holder lives."""
    os.utime(handle)


def holds(folder: Path) -> bool:
    """Whether this very process has the lock. The number in the file would not do: numbers come again."""
    try:
        found = (folder / "LOCK").stat()
    except OSError:
        return False
    return (found.st_dev, found.st_ino) in _held


def is_held(folder: Path) -> bool:
    """Whether a process of this machine has the lock, this very one too."""
    try:
        handle = os.open(folder / "LOCK", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def holder(folder: Path) -> dict[str, str] | None:
    """Who wrote the lock file last and did not sign off, or None."""
    try:
        told = json.loads((folder / "LOCK").read_text())
        return {"pid": str(told["pid"]), "host": str(told["host"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _taken(folder: Path) -> int:
    """The lock file, open and locked."""
    path = folder / "LOCK"
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise storage_error(error, path, 0) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and path.stat().st_ino == os.fstat(handle).st_ino:  # else its run was given up meanwhile
                return handle
        except BlockingIOError:
            os.close(handle)
            raise _in_use(folder, _named(folder)) from None
        except OSError as error:
            os.close(handle)
            raise storage_error(error, path, 0) from error
        os.close(handle)


def _sign(folder: Path, handle: int) -> None:
    """Write into the lock file who holds it now, unless another host still does."""
    other, host = holder(folder), socket.gethostname()
    try:
        if other and other["host"] != host:
            quiet = time.time() - os.fstat(handle).st_mtime
            if abs(quiet) < FOREIGN_SECONDS:  # abs: clocks of two hosts differ, and clocks jump
                raise _in_use(folder, other)
        os.lseek(handle, 0, os.SEEK_SET)
        write_all(handle, json.dumps({"pid": os.getpid(), "host": host}).encode().ljust(_SIZE))
        os.ftruncate(handle, _SIZE)
    except OSError as error:
        raise storage_error(error, folder / "LOCK", _SIZE) from error


@contextmanager
def _signs_of_life(handle: int) -> Iterator[None]:
    """Keep the lock file young, however long a step takes."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(_BEAT_SECONDS):
            with suppress(OSError):  # the next commit tells the user what is wrong with the disk
                keep_alive(handle)

    beating = threading.Thread(target=beat, daemon=True, name="assay-lock")
    beating.start()
    try:
        yield
    finally:
        over.set()
        beating.join()


def _named(folder: Path) -> dict[str, str] | None:
    """Who holds a lock that is taken; a moment may pass before the name is there."""
    until = time.monotonic() + _TOLD_SECONDS
    while (who := holder(folder)) is None and time.monotonic() < until:
        time.sleep(0.01)
    return who


def _place(handle: int) -> tuple[int, int]:
    found = os.fstat(handle)
    return found.st_dev, found.st_ino


def _in_use(folder: Path, who: dict[str, str] | None) -> InUse:
    name = f"process {who['pid']} on {who['host']}" if who else "another process"
    return InUse(
        f"the run folder {folder} is in use by {name}; wait for it, stop it, or start another run with --fresh"
    )
