"""Files and folders of object stores at hand on this machine, and files that go there once they are whole.

What was fetched is kept in the cache under its address and what the store tells of the content: it is fetched again
where that has changed, and never otherwise.
"""

import filecmp
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar, cast

from assay.core import trust
from assay.core.cache import cache_folder
from assay.core.errors import StorageError, UsageError
from assay.core.files import canonical_json, make_folder, sha256, storage_error, write_atomic
from assay.core.places import scratch
from assay.core.remote import Objects, Stamp, address, on_disk

log = logging.getLogger("assay")

_TOGETHER = 8
Work = TypeVar("Work", bound=Callable[..., Any])


def _far(ref: str | Path) -> str | Path:
    """The address, if it may be asked; of what lies on this machine, its path."""
    url = address(ref)
    if url is None:
        return Path(ref)
    disk = on_disk(url)
    if disk is not None:
        return disk
    trust.check(url)
    return url


def at_hand(ref: str | Path) -> Path:
    """The file on this machine: what an address names is fetched, a path is itself."""
    url = _far(ref)
    if isinstance(url, Path):
        return url
    objects = Objects(url)
    stamp = objects.stamp()
    if stamp is None:
        raise UsageError(f"no such file: {url}")
    place = _kept(url, {"": stamp})
    path = place / url.rpartition("/")[2]
    if not path.is_file():
        _fill(place, lambda folder: objects.get("", folder / path.name))
    return path


def folder_at_hand(ref: str) -> Path:
    """The same of all that lies below an address."""
    url = _far(ref)
    if isinstance(url, Path):
        return url
    objects = Objects(url)
    there = {name: stamp for name, stamp in objects.all().items() if name}
    if not there:
        raise UsageError(f"no such folder: {url}")
    place = _kept(url, there)
    path = place / url.rpartition("/")[2]

    def fetch(folder: Path) -> None:
        with ThreadPoolExecutor(_TOGETHER) as workers:
            list(workers.map(lambda name: objects.get(name, folder / path.name / name), there))

    if not path.is_dir():
        _fill(place, fetch)
    return path


@contextmanager
def going_to(ref: str | Path, *, anew: bool = False) -> Iterator[Path]:
    """A path to write a file to that is put at an address at the end, where that is one; ``anew``, whatever is there.

    It lies in the cache: what is left beside it by work that was stopped is found again by the same command here, and
    so is a file that was made and did not get there. One that is at the address already is fetched first, so that it is
    met as it would be on a disk.
    """
    url = address(ref)
    disk = None if url is None else on_disk(url)
    if url is None or disk is not None:
        yield Path(ref) if disk is None else disk
        return
    draft = _Draft(url)
    draft.begin(anew=anew)
    yield draft.path
    draft.send()


def into_stores(work: Work) -> Work:
    """The same function, whose argument ``out`` may be an address too; with ``overwrite`` what is there is replaced."""

    @wraps(work)
    def done(*given: Any, **options: Any) -> Any:
        bound = signature(work).bind(*given, **options)
        with going_to(bound.arguments["out"], anew=bool(bound.arguments.get("overwrite"))) as path:
            bound.arguments["out"] = path
            return work(*bound.args, **bound.kwargs)

    return cast(Work, done)


class _Draft:
    """A file on its way to an address. A note beside it says how both were before it was made: so what was made and not
    sent, for the store was away or the command was killed, is known for what it is, and only has to be sent.
    """

    def __init__(self, url: str) -> None:
        self.objects, self.path = Objects(url), scratch(url)
        self._note = self.path.with_name(f".{self.path.name}.unsent")

    def begin(self, *, anew: bool) -> None:
        """Have here what is there, unless what is here was made after it; nothing where it is to be made ``anew``."""
        stamp = self.objects.stamp()
        there = None if stamp is None else stamp.token
        noted = self._noted()
        if not anew and noted is not None and noted[0] == there:
            return
        if anew or stamp is None:
            self.path.unlink(missing_ok=True)
        elif noted is not None:
            self._set_aside()
        else:
            self.objects.get("", self.path)
        write_atomic(self._note, canonical_json([there, self._looks()]).encode())

    def send(self) -> None:
        """Write the file to its address, if it was made."""
        if self._noted() is not None:
            try:
                self.objects.put("", self.path.read_bytes())
            except (StorageError, UsageError) as error:
                raise type(error)(
                    f"{error}. The file is finished and kept in {self.path}: the same command, without --overwrite, "
                    "only writes it to its address"
                ) from error
        self._note.unlink(missing_ok=True)

    def _noted(self) -> list[Any] | None:
        """How both sides were before the file was made, None where none was made since."""
        try:
            noted = json.loads(self._note.read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        whole = isinstance(noted, list) and len(noted) == 2
        return noted if whole and self._looks() not in (None, noted[1]) else None

    def _set_aside(self) -> None:
        """Fetch what others, or a call of ours whose answer was lost, have written; ours is kept where it differs."""
        ours = self.path.with_name(f"{self.path.stem}.unsent{self.path.suffix}")
        self.path.replace(ours)
        self.objects.get("", self.path)
        if filecmp.cmp(ours, self.path, shallow=False):
            ours.unlink()
        else:
            log.warning("%s was written by others since; what was made here is kept in %s", self.objects.url, ours)

    def _looks(self) -> list[int] | None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return [found.st_ino, found.st_size, found.st_mtime_ns]


def _kept(url: str, stamps: dict[str, Stamp]) -> Path:
    """The folder of the cache for that content at that address."""
    return cache_folder() / "fetched" / sha256(url.encode())[:16] / sha256(canonical_json(stamps).encode())[:16]


def _fill(place: Path, fetch: Callable[[Path], object]) -> None:
    """Fetch into a folder of our own and move it to its place whole: another process may do the same."""
    beside = place.with_name(f"{place.name}.{os.getpid()}.tmp")
    try:
        make_folder(beside)
        fetch(beside)
        if not place.exists():
            beside.rename(place)
    except OSError as error:
        if not place.is_dir():  # else the other was faster
            raise storage_error(error, place, 0) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
