"""Writing files so that a crash leaves either the old or the new one, and names that cannot leave their folder."""

import errno
import hashlib
import json
import os
import re
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from assay.core.errors import StorageError, UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_RESERVED = {"con", "prn", "aux", "nul", *(f"{d}{i}" for d in ("com", "lpt") for i in range(1, 10))}
TEMPORARY = ".tmp"


def safe_name(text: str, what: str = "run name") -> str:
    """``text`` if it is a plain file name on every system; text from users never becomes a path otherwise."""
    if not is_plain(text):
        shown = text if len(text) <= 60 else text[:57] + "..."
        raise UsageError(
            f"{what} {shown!r} is not a plain name; use letters, digits, '.', '_' and '-', at most 100 characters"
        )
    return text


def is_plain(text: str) -> bool:
    """Whether a text is a file name on every system and nothing more."""
    return bool(_NAME.fullmatch(text)) and text.split(".")[0].lower() not in _RESERVED and not text.endswith(".")


def whole_text(text: str) -> str:
    """The text with what is no Unicode shown by its bytes: half a character cannot be written to any file of ours.

    >>> whole_text("a\\ud800b")
    'a\\\\ud800b'
    """
    return text.encode("utf-8", "backslashreplace").decode()


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


def make_folder(folder: Path) -> bool:
    """Make the folder where there is none, durably; whether it was us who made it."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        if not folder.is_dir():
            raise UsageError(f"{folder} is a file, where a folder is wanted; move it away") from None
        return False
    except OSError as error:
        raise storage_error(error, folder, 0) from error
    try:
        sync_folder(folder.parent)
    except OSError as error:
        with suppress(OSError):
            folder.rmdir()  # else the next one would take it for durable
        raise storage_error(error, folder, 0) from error
    return True


def write_all(handle: int, content: bytes) -> None:
    """Write every byte: a disk that fills, or a signal, may take fewer at a time."""
    left = memoryview(content)
    while left:
        written = os.write(handle, left)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left = left[written:]


def write_atomic(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path``: a temporary file in the same folder, fsync, rename, fsync of the folder."""
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        _write_durably(temporary, content)
        temporary.replace(path)
        sync_folder(path.parent)
    except BaseException as error:  # an interrupt leaves nothing behind either
        with suppress(OSError):  # a disk that is read-only by now keeps it; the next opening sets it aside
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise storage_error(error, path, len(content)) from error
        raise


def _write_durably(path: Path, content: bytes) -> None:
    # Never through a link of that name: what it leads to would be emptied.
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        write_all(handle, content)
        os.fsync(handle)
    finally:
        os.close(handle)


def storage_error(error: OSError, path: Path, size: int) -> StorageError:
    """What to tell the user of a refused write; ``size`` is 0 where nobody knows how much was wanted."""
    reason = {
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the disk quota is used up",
        errno.EROFS: "the file system is read-only",
        errno.EACCES: "permission denied",
        errno.EFBIG: "a file may not grow that large here (see ulimit -f)",
    }.get(error.errno or 0, os.strerror(error.errno or errno.EIO))
    needed = f" ({size} bytes needed)" if size else ""
    return StorageError(
        f"cannot write {path.name} in {path.parent}: {reason}{needed}; "
        "what was committed before is intact, the same command goes on from there"
    )


def zip_members(path: Path) -> list[zipfile.ZipInfo]:
    """What an archive says it holds, nothing unpacked; nothing of what is none or damaged, as its reader will say."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.infolist()
    except (
        zipfile.BadZipFile,
        OSError,
        ValueError,
        NotImplementedError,
        EOFError,
    ):  # the last but one: unknown packing
        return []
