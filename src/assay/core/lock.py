"""One writer per folder: an advisory lock that says who holds it."""

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.core.errors import UsageError
from assay.core.files import storage_error

# A lock file of another host is believed this long after its last sign of life: network file systems
# do not always carry flock from host to host.
FOREIGN_SECONDS = 600.0


@contextmanager
def folder_lock(folder: Path) -> Iterator[int]:
    """The lock of ``folder``, yielding its file descriptor; a holder elsewhere is a usage error that names it."""
    path = folder / "LOCK"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise storage_error(error, path, 0) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _in_use(folder, holder(folder)) from None
        other = holder(folder)
        if other and other["host"] != socket.gethostname():
            quiet = time.time() - path.stat().st_mtime
            if abs(quiet) < FOREIGN_SECONDS:  # abs: clocks of two hosts differ, and clocks jump
                raise _in_use(folder, other)
        _write(handle, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
        try:
            yield handle
        finally:
            _write(handle, b"")
            fcntl.flock(handle, fcntl.LOCK_UN)  # a forked child may still have the file open
    finally:
        os.close(handle)


def keep_alive(handle: int) -> None:
    """Show that the holder lives."""
    os.utime(handle)


def holder(folder: Path) -> dict[str, str] | None:
    """Who wrote the lock file last and did not sign off, or None."""
    try:
        told = json.loads((folder / "LOCK").read_text())
        return {"pid": str(told["pid"]), "host": str(told["host"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _in_use(folder: Path, who: dict[str, str] | None) -> UsageError:
    name = f"process {who['pid']} on {who['host']}" if who else "another process"
    return UsageError(
        f"the run folder {folder} is in use by {name}; wait for it, stop it, or start another run with --fresh"
    )


def _write(handle: int, content: bytes) -> None:
    os.ftruncate(handle, 0)
    os.pwrite(handle, content, 0)
