"""Where runs lie: in a folder of runs, or in an object store, and then in a folder of the cache they are worked in."""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from assay.core.errors import StorageError, UsageError
from assay.core.files import is_plain, make_folder, safe_name, sha256, storage_error, write_atomic
from assay.core.lock import folder_lock, is_held
from assay.core.remote import address, on_disk

if TYPE_CHECKING:
    from assay.core.remote_run import Mirror

log = logging.getLogger("assay")

_SCRATCH = "object-stores"  # the folder of the cache
_MARK = ".address"  # the file that says which address a folder of runs there belongs to
_mirrors: dict[Path, "Mirror"] = {}
_inside: ContextVar[Path | None] = ContextVar("assay_runs", default=None)


@contextmanager
def runs_in(folder: Path) -> Iterator[None]:
    """Until it ends, run folders lie in this one: for work that makes several and keeps them together."""
    before = _inside.set(folder)
    try:
        yield
    finally:
        _inside.reset(before)


def runs_root() -> Path:
    """Where run folders lie: ``$ASSAY_RUNS``, else ``runs`` here. Of an address, the folder they are worked in."""
    inside = _inside.get()
    if inside is not None:
        return inside
    given = os.environ.get("ASSAY_RUNS") or "runs"
    url = address(given)
    return Path(given) if url is None else _root(url)


def place(name: str) -> Path:
    """The folder of the run of that name, or at that address, as new as it can be had; nothing need be there."""
    root, last = _root_of(name)
    return _fetched(root / safe_name(last))


def find_run(ref: str | Path) -> Path:
    """The folder of a run given by name or path."""
    url = address(ref)
    with suppress(OSError):  # a name that is too long, a folder that is not ours
        places = [place(url)] if url is not None else [_fetched(Path(ref)), _fetched(runs_root() / ref)]
        for path in places:
            if (path / "journal.jsonl").is_file():
                return path
        for path in places:
            if (path / "campaign.toml").is_file():
                raise UsageError(
                    f"run {str(ref)!r} has no journal in {known_as(path)}; the command that made it does it again"
                )
    if url is not None:
        raise UsageError(f"no run {url}")
    raise UsageError(f"no run {str(ref)!r}: neither a run folder nor a name below {known_as(runs_root())}")


def new_folder(name: str) -> Path:
    """A run folder that did not exist: ``name``, else ``name-2``, ``name-3`` …"""
    root, name = _root_of(name)
    make_folder(root)
    safe_name(name)
    for attempt in range(1, 10_000):
        path = root / (name if attempt == 1 else f"{name[:94]}-{attempt}")
        mirror = mirror_of(path)
        if mirror is not None and (mirror.objects.all() or not mirror.reserve()):
            continue
        if make_folder(path):
            return path
    raise UsageError(f"there are 10000 runs named {name}; choose another name")


def known_as(path: Path) -> str:
    """A place in a run, or of one, as the user knows it."""
    root = _marked(path)
    if root is None:
        return str(path)
    inside = path.relative_to(root).as_posix()
    return _url_of(root) + ("" if inside == "." else f"/{inside}")


def beside(out: str) -> str:
    """What files beside ``out`` are named after: where that goes to an object store, they stay in this folder."""
    url = address(out)
    return out if url is None else url.rpartition("/")[2]


def push(path: Path, under: str) -> None:
    """Write what changed below ``under`` in the run at that path to the object store that the run is in."""
    mirror = mirror_of(path)
    if mirror is not None:
        mirror.push(under)
        mirror.drop(under)


def push_late(path: Path) -> None:
    """Write what was added to a run after its end; where that fails it is told, and nothing else fails for it."""
    mirror = mirror_of(path)
    if mirror is not None and not mirror.is_open:
        try:
            mirror.push()
        except (StorageError, UsageError) as error:
            log.warning("%s: what came after the end is not all there (%s)", known_as(path), error)


def writer_elsewhere(path: Path) -> dict[str, str] | None:
    """Who writes from another machine to the run at that path, which lies in an object store."""
    mirror = mirror_of(path)
    return None if mirror is None or mirror.is_open else mirror.writer()


def mirror_of(path: Path) -> "Mirror | None":
    """What ties the run at that path, or the one around it, to an object store; None where nothing does."""
    root = _marked(path)
    if root is None or path == root:
        return None
    first = path.relative_to(root).parts[0]
    if not is_plain(first):  # nothing that leads elsewhere is a run there
        return None
    folder = root / first
    if folder not in _mirrors:
        from assay.core.remote_run import Mirror

        _mirrors[folder] = Mirror(f"{_url_of(root)}/{folder.name}", folder)
    return _mirrors[folder]


@contextmanager
def held(path: Path) -> Iterator[tuple[int, "Mirror | None"]]:
    """The lock of a run folder, and where the run is in an object store the right to write there too."""
    mirror = mirror_of(path)
    if mirror is None or mirror.is_open:  # a run inside one that we write to
        with folder_lock(path) as lock:
            yield lock, mirror
        return
    with ExitStack() as until_done:
        with _fetching(mirror.folder):  # whoever only reads waits, and then finds all of it
            lock = until_done.enter_context(folder_lock(path))
            until_done.enter_context(mirror.writing())
        yield lock, mirror


def _root_of(name: str) -> tuple[Path, str]:
    """The folder of runs that a name or an address lies in, and the name there."""
    url = address(name)
    if url is None:
        return runs_root(), name
    root, _, last = url.rpartition("/")
    if root.endswith("/"):
        raise UsageError(f"{url} names no run; write {url}/NAME")
    return _root(root), last


def _root(url: str) -> Path:
    """The folder for the runs below an address."""
    disk = on_disk(url)
    if disk is not None:
        return disk
    from assay.core.cache import cache_folder

    root = cache_folder().absolute() / _SCRATCH / sha256(url.encode())[:16]
    if not (root / _MARK).is_file():
        try:
            root.mkdir(parents=True, exist_ok=True)
            write_atomic(root / _MARK, url.encode())
        except OSError as error:
            raise storage_error(error, root / _MARK, 0) from error
    return root


def scratch(url: str) -> Path:
    """Where a file that goes to an address is made: what it is known as is the address."""
    folder, _, name = url.rpartition("/")
    root = _root(folder).with_suffix(".files")
    make_folder(root)
    if not (root / _MARK).is_file():
        write_atomic(root / _MARK, folder.encode())
    return root / name


def _marked(path: Path) -> Path | None:
    """The folder of runs of an object store that a path lies in."""
    if _SCRATCH not in path.parts:
        return None
    return next((folder for folder in (path, *path.parents) if (folder / _MARK).is_file()), None)


def _url_of(root: Path) -> str:
    return (root / _MARK).read_text(encoding="utf-8")


def _fetched(path: Path) -> Path:
    """The path, with the run there fetched unless somebody works in it, who keeps it new."""
    mirror = mirror_of(path)
    if mirror is not None and not mirror.is_open:
        with _fetching(mirror.folder):
            if not is_held(mirror.folder):
                mirror.fetch()
    return path


@contextmanager
def _fetching(folder: Path) -> Iterator[None]:
    """While nobody else on this machine fetches the same run."""
    handle = os.open(folder.with_name(f".{folder.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
