"""Object stores: what an address such as ``s3://bucket/name`` is, and calls that are tried again where one fails.

Whatever fsspec knows can be named; ``s3://`` is the one that is tested with a server. Nothing here is imported, and no
package needed, before an address is used.
"""

import base64
import hashlib
import inspect
import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from assay.core.errors import StorageError, UsageError
from assay.core.extras import needed

log = logging.getLogger("assay")
T = TypeVar("T")

TRIES = 5
PAUSE = 0.5  # seconds before the second try; twice as long before each next one
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
_AS_PATH = re.compile(r"([a-z][a-z0-9+.-]+):/(?=[^/])", re.IGNORECASE)  # pathlib makes one slash of two
_ASKED = ("http", "https")  # models that answer, not stores
_PASSWORD = re.compile(r"://[^/@]*:[^@]*@")
_NO_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound")
_BAD_PART = re.compile(r"\.{0,2}|.*[\\\0\n].*|.{256,}", re.DOTALL)
# Ours are the tries; what the client would do by itself multiplies them. A machine that is gone does not refuse.
_S3 = {"connect_timeout": 10, "read_timeout": 60, "retries": {"total_max_attempts": 1, "mode": "standard"}}


def address(ref: str | Path) -> str | None:
    """The address in an object store that a text or a path is, None of all others.

    >>> address("s3://bucket/runs/first/"), address("runs/first"), address("http://host/predict")
    ('s3://bucket/runs/first', None, None)
    """
    text = _AS_PATH.sub(r"\1://", str(ref), count=1) if isinstance(ref, Path) else ref
    match = _ADDRESS.match(text)
    if match is None or match[1].lower() in _ASKED:
        return None
    if _PASSWORD.search(text):
        raise UsageError(
            f"an address of {match[1]}:// has a password in it, which runs would keep; give it as the package that "
            "opens such addresses wants it: by the environment, or a file of its own"
        )
    if "::" in text:
        raise UsageError(f"{text} is a chain of addresses; give one, of the store itself")
    return text.rstrip("/")


def on_disk(url: str) -> Path | None:
    """The path that an address of this machine's own disk means."""
    scheme, _, rest = url.partition("://")
    return Path("/" + rest.lstrip("/")) if scheme.lower() in ("file", "local") else None


class Stamp(NamedTuple):
    """What a store tells of an object: it differs where the content does; ``md5`` where that is told."""

    token: str
    size: int
    md5: str = ""


@dataclass(frozen=True)
class Objects:
    """The objects below an address, by their names relative to it."""

    url: str

    @cached_property
    def _place(self) -> tuple[Any, str]:
        fsspec = needed("fsspec", "cloud", self.url)
        scheme = self.url.partition("://")[0].lower()
        options: dict[str, Any] = {"use_listings_cache": False}
        if scheme in ("s3", "s3a"):
            given = fsspec.config.conf.get("s3", {}).get("config_kwargs", {})
            options["config_kwargs"] = {**_S3, **given}
        try:
            found = fsspec.core.url_to_fs(self.url, **options)
        except ImportError as error:
            raise UsageError(f"{scheme}:// cannot be used here: {error}; pip install 'assay[cloud]'") from error
        except ValueError as error:  # a protocol that fsspec does not know
            raise UsageError(f"{self.url} cannot be used: {_first_line(error)}") from error
        if hasattr(found[0], "retries"):  # s3fs asks five times by itself, besides what it stands on
            found[0].retries = 1
        return found[0], str(found[1]).rstrip("/")

    def __truediv__(self, name: str) -> "Objects":
        return Objects(f"{self.url}/{name}")

    def all(self, under: str = "", *, tries: int = TRIES) -> dict[str, Stamp]:
        """The objects there are, those whose names no file may have left out with a warning."""
        fs, base = self._place
        start = f"{base}/{under}".rstrip("/")
        found = self._tried("list", fs.find, start, detail=True, tries=tries, missing={})
        named = {name.lstrip("/").removeprefix(f"{base}/".lstrip("/")): told for name, told in found.items()}
        bad = [name for name in named if any(_BAD_PART.fullmatch(part) for part in name.split("/"))]
        for name in bad:
            log.warning("%s: an object called %r is left out, for no file may have that name", self.url, name)
            del named[name]
        return {name: _stamp(told) for name, told in named.items()}

    def stamp(self, name: str = "", *, tries: int = TRIES) -> Stamp | None:
        """What is told of one object, None where there is none."""
        fs, _ = self._place
        told = self._tried("look at", fs.info, self._key(name), tries=tries, missing=None)
        return None if told is None or told.get("type") == "directory" else _stamp(told)

    def read(self, name: str, *, tries: int = TRIES) -> bytes | None:
        """The content of an object, None where there is none."""
        fs, _ = self._place
        content: bytes | None = self._tried("read", fs.cat_file, self._key(name), tries=tries, missing=None)
        return content

    def get(self, name: str, path: Path) -> bool:
        """Put the content into a file; whether there was an object."""
        fs, _ = self._place
        temporary = path.with_name(f"{path.name}.tmp")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            there = self._tried("fetch", fs.get_file, self._key(name), str(temporary), missing=False) is not False
            if there:
                temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        return there

    def put(self, name: str, content: bytes, *, tries: int = TRIES) -> None:
        """Write an object, over the one of that name."""
        fs, _ = self._place
        self._tried("write", fs.pipe_file, self._key(name), content, tries=tries)

    def create(self, name: str, content: bytes) -> bool:
        """Write an object where there is none of that name; of two who try at once, one does."""
        fs, _ = self._place
        key = self._key(name)
        try:
            if "mode" in inspect.signature(getattr(fs, "_pipe_file", fs.pipe_file)).parameters:
                self._tried("write", fs.pipe_file, key, content, mode="create")
                return True
            _warn_unconditional(self.url)
            if self._tried("look at", fs.exists, key):
                return False
            self._tried("write", fs.pipe_file, key, content)
        except FileExistsError:
            return False
        return True

    def delete(self, name: str) -> None:
        """Remove an object, if it is there."""
        fs, _ = self._place
        self._tried("remove", fs.rm_file, self._key(name), missing=None)

    def _key(self, name: str) -> str:
        base = self._place[1]
        return f"{base}/{name}" if name else base

    def _tried(
        self, verb: str, call: Callable[..., T], *given: Any, tries: int = TRIES, missing: Any = ..., **options: Any
    ) -> T | Any:
        """What the call gives, several times asked; ``missing`` where there is no such object."""
        for attempt in range(1, tries + 1):
            try:
                return call(*given, **options)
            except FileExistsError:
                raise
            except FileNotFoundError as error:
                if missing is not ... and "bucket does not exist" not in str(error):
                    return missing
                raise UsageError(f"cannot {verb} {self.url}: {_first_line(error)}") from error
            except Exception as error:  # each package raises its own, and so does what it stands on
                _refuse_for_good(verb, self.url, error)
                if options.get("mode") == "create" and _is_412(error):
                    raise FileExistsError(f"{self.url}: {_first_line(error)}") from error
                if attempt == tries:
                    reason = f"{type(error).__name__}: {_first_line(error)}"
                    raise StorageError(
                        f"cannot {verb} {self.url} ({reason}), tried {tries} times; what was committed before is "
                        "intact, the same command goes on from there"
                    ) from error
                log.info("%s: %s failed (%s), tried again", self.url, verb, type(error).__name__)
                time.sleep(PAUSE * 2 ** (attempt - 1))
        raise AssertionError("unreachable")


def md5_of(content: bytes) -> str:
    """As stores tell it of an object; it guards against nothing but chance."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def _stamp(told: Mapping[str, Any]) -> Stamp:
    etag = str(told.get("ETag") or told.get("etag") or "").strip('"')
    size = int(told.get("size") or 0)
    md5 = etag if re.fullmatch(r"[0-9a-f]{32}", etag) else ""
    if not md5 and isinstance(told.get("md5Hash"), str):  # Google's, by its own name and writing
        md5 = base64.b64decode(told["md5Hash"]).hex()
    when = next((told[key] for key in ("LastModified", "last_modified", "mtime", "created") if told.get(key)), "")
    moment = str(when.timestamp()) if isinstance(when, datetime) else str(when)  # lists and looks tell it in two ways
    return Stamp(md5 or etag or f"{size} {moment}", size, md5)


def _refuse_for_good(verb: str, url: str, error: Exception) -> None:
    """Raise what no further try would mend."""
    if type(error).__name__ in _NO_CREDENTIALS:
        raise UsageError(
            f"cannot {verb} {url}: there are no credentials for it; give them as its own tools take them (for s3://: "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile)"
        ) from error
    if isinstance(error, PermissionError):
        raise UsageError(f"cannot {verb} {url}: access was refused ({_first_line(error)})") from error


def _is_412(error: Exception) -> bool:
    """Whether the store said that its condition was not met: of a write where there is none, that there is one.

    S3's answer names the condition, by which s3fs knows it; those of MinIO and others do not. Google's is a code.
    """
    for told in (error, error.__cause__):
        answer = getattr(told, "response", None)
        code = answer.get("Error", {}).get("Code") if isinstance(answer, Mapping) else getattr(told, "code", None)
        if str(code) in ("PreconditionFailed", "412"):
            return True
    return False


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200] or type(error).__name__


_warned: set[str] = set()


def _warn_unconditional(url: str) -> None:
    scheme = url.partition("://")[0]
    if scheme not in _warned:
        _warned.add(scheme)
        log.warning(
            "%s:// cannot write an object only where there is none: of two commands that write to one run at the very "
            "same moment both may believe they did",
            scheme,
        )
