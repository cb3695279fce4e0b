"""What can be computed again is kept outside of runs: in ``$ASSAY_CACHE``, or where the system keeps caches."""

import fcntl
import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torch import Tensor

from assay.core.errors import UsageError
from assay.core.shards import decode, encode

log = logging.getLogger("assay")

_DIGEST = 32  # bytes of SHA-256 before the columns: safetensors itself does not notice a changed number


def cache_folder() -> Path:
    """Where such files are kept; nothing is lost when it is removed but time, and the notes of core/trust.py."""
    given = os.environ.get("ASSAY_CACHE")
    if given:
        return Path(given)
    import pooch

    return Path(pooch.os_cache("assay"))


def remembered(
    kind: str, key: str, make: Callable[[], dict[str, Tensor]], fits: Callable[[dict[str, Tensor]], bool]
) -> dict[str, Tensor]:
    """The columns kept under a kind and a key, which is a digest of all they depend on; made where there are none.

    A damaged file, or one that does not fit, is made anew. A folder that cannot be written to costs the time only. Of
    two processes that want the same thing the second waits for the first.
    """
    path = cache_folder() / kind / f"{key}.safetensors"
    found = _read(path)
    if found is not None and fits(found):
        return found
    with _alone(path):
        found = _read(path)
        if found is not None and fits(found):
            return found
        made = make()
        _write(path, encode(made))
    return made


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """While nobody else makes the same thing; where no lock can be had, two may, and that costs the time only."""
    try:
        place = cache_folder() / "locks" / f"{path.parent.name}-{path.stem}"
        place.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError:
        yield
        return
    try:
        with suppress(OSError):  # a file system without locks
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                log.warning("another process is making %s; this one waits for it", path.name)
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _read(path: Path) -> dict[str, Tensor] | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, columns = content[:_DIGEST], content[_DIGEST:]
    if hashlib.sha256(columns).digest() != digest:
        log.warning("%s is damaged and is made anew", path)
        return None
    try:
        return decode(columns)
    except UsageError:  # of another kind altogether
        return None


def _write(path: Path, columns: bytes) -> None:
    # Not write_atomic: a name of its own, for two runs may fit the same thing, and no fsync, for nothing is lost.
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.glob(f"{path.name}.*.tmp"):  # by a process that was killed
            left.unlink(missing_ok=True)
        try:
            temporary.write_bytes(hashlib.sha256(columns).digest() + columns)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        log.warning("cannot keep %s: %s; it will be made again the next time", path, error.strerror)
