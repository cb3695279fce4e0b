"""What can be computed again is kept outside of runs: in ``$ASSAY_CACHE``, or where the system keeps caches."""

import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from assay.core.errors import UsageError
from assay.core.shards import decode, encode

log = logging.getLogger("assay")

_DIGEST = 32  # bytes of SHA-256 before the columns: safetensors itself does not notice a changed number


def cache_folder() -> Path:
    """Where such files are kept; nothing is lost when it is removed."""
    given = os.environ.get("ASSAY_CACHE")
    if given:
        return Path(given)
    import pooch

    return Path(pooch.os_cache("assay"))


def remembered(
    kind: str, key: str, make: Callable[[], dict[str, Tensor]], fits: Callable[[dict[str, Tensor]], bool]
) -> dict[str, Tensor]:
    """The columns kept under a kind and a key, which is a digest of all they depend on; made where there are none.

    A damaged file, or one that does not fit, is made anew. A folder that cannot be written to costs the time only.
    """
    path = cache_folder() / kind / f"{key}.safetensors"
    found = _read(path)
    if found is not None and fits(found):
        return found
    made = make()
    _write(path, encode(made))
    return made


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
        try:
            temporary.write_bytes(hashlib.sha256(columns).digest() + columns)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        log.warning("cannot keep %s: %s; it will be made again the next time", path, error.strerror)
