"""Writing files so that a crash leaves either the old or the new one, and names that cannot leave their folder."""

import errno
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from assay.core.errors import StorageError, UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_RESERVED = {"con", "prn", "aux", "nul", *(f"{d}{i}" for d in ("com", "lpt") for i in range(1, 10))}
TEMPORARY = ".tmp"


def safe_name(text: str, what: str = "run name") -> str:
    """``text`` if it is a plain file name on every system; text from users never becomes a path otherwise."""
    if not _NAME.fullmatch(text) or text.split(".")[0].lower() in _RESERVED or text.endswith("."):
        shown = text if len(text) <= 60 else text[:57] + "..."
        raise UsageError(
            f"{what} {shown!r} is not a plain name; use letters, digits, '.', '_' and '-', at most 100 characters"
        )
    return text


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def canonical_json(value: Any) -> str:
    """One text for one value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def sync_folder(folder: Path) -> None:
    """Make the folder's list of names durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomic(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path``: a temporary file in the same folder, fsync, rename, fsync of the folder."""
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        with temporary.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise storage_error(error, path, len(content)) from error


def storage_error(error: OSError, path: Path, size: int) -> StorageError:
    """What to tell the user of a refused write."""
    reason = {
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the disk quota is used up",
        errno.EROFS: "the file system is read-only",
        errno.EACCES: "permission denied",
    }.get(error.errno or 0, os.strerror(error.errno or errno.EIO))
    return StorageError(
        f"cannot write {path.name} in {path.parent}: {reason} ({size} bytes needed); "
        "what was committed before is intact, the same command goes on from there"
    )
