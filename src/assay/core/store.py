"""The run folder: committed work that survives kills, full disks and flipped bytes.

A commit writes its files (temporary name, fsync, rename, fsync of the folder) and then one journal line with their
digests. The line is the commit: what has no line did not happen and is moved to ``quarantine/`` at the next opening.
"""

import logging
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core import journal, onlookers, toml, trust
from assay.core.command import command_table
from assay.core.errors import NothingToTest, StorageError, UsageError
from assay.core.files import TEMPORARY, make_folder, safe_name, sha256, storage_error, write_atomic
from assay.core.lock import keep_alive
from assay.core.places import find_run, held, new_folder, place, runs_root
from assay.core.real import check_real
from assay.core.repair import COMMITTED, SEALED, did_nothing, looked_at, repaired, set_aside, unmade
from assay.core.sameness import Config, check_same, identity
from assay.core.sealed import json_of, sealed_json, sealed_text

if TYPE_CHECKING:
    from assay.core.remote_run import Mirror

__all__ = [
    "Config",
    "Store",
    "begun_with",
    "continued",
    "find_run",
    "identity",
    "new_folder",
    "opened",
    "place",
    "read",
    "runs_root",
]

_logger = logging.getLogger("assay")


@dataclass(slots=True)
class Store:
    """A run folder, open for reading; for writing inside ``opened``."""

    path: Path
    lines: journal.Lines
    damage: list[str] = field(default_factory=list)
    _lock: int | None = None
    _mirror: "Mirror | None" = None
    _size: int = field(init=False)
    _digests: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._size = self.lines.size
        self._digests = {name: digest for line in self.lines for name, digest in line.files.items()}

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration, as ``campaign.toml`` holds it."""
        return tomllib.loads((self.path / "campaign.toml").read_text(encoding="utf-8"))

    def commits(self, kind: str) -> Iterator[journal.Line]:
        """The commits of one kind, in order."""
        return (line for line in self.lines if line.meta.get("kind") == kind)

    def totals(self, kind: str, counted: str = "counts") -> dict[str, int]:
        """The counts that commits of one kind told, added up."""
        sums: dict[str, int] = {}
        for line in self.commits(kind):
            for name, count in line.meta.get(counted, {}).items():
                sums[name] = sums.get(name, 0) + int(count)
        return sums

    def file(self, name: str) -> bytes:
        """The content of a committed file, checked against its digest."""
        digest = self._digests.get(name)
        if digest is None:
            raise UsageError(f"run {self.name} has no file {name}")
        try:
            content = (self.path / name).read_bytes()
        except OSError as error:
            raise UsageError(f"{self.path / name} cannot be read: {error.strerror}") from error
        if sha256(content) != digest:
            raise UsageError(f"{self.path / name} differs from what was committed; reopen the run to repair it")
        return content

    def commit(self, files: Mapping[str, bytes], **meta: Any) -> None:
        """Make files and facts durable, together or not at all."""
        if self._lock is None:
            raise UsageError(f"run {self.name} is open for reading only")
        paths = {self._place(name): content for name, content in files.items()}
        line = journal.Line(len(self.lines), {n: sha256(c) for n, c in files.items()}, meta)
        line.encode()  # facts that JSON cannot hold are refused before anything is written
        log, before = self.path / "journal.jsonl", self.lines[-1].encode() if self.lines else b""
        try:
            for path, content in paths.items():
                write_atomic(path, content)
            if self._mirror is not None:
                self._mirror.commit(self.path, line, files, before)
            size = journal.append(log, line, at=self._size)
        except BaseException as error:
            far = self._mirror if not isinstance(error, StorageError) else None  # a store that is away cannot be asked
            if journal.ends_with(log, line):  # an interrupt may strike after the line got there
                self._add(line, self._size + len(line.encode()))
            elif far is not None and far.has(self.path, line, before):
                self._add(line, journal.append(log, line, at=self._size))
            else:
                with suppress(OSError):  # a disk that is read-only by now keeps them; the next opening sets them aside
                    for path in paths:
                        path.unlink(missing_ok=True)
            raise
        self._add(line, size)
        try:
            keep_alive(self._lock)
        except OSError as error:
            raise storage_error(error, self.path / "LOCK", 0) from error

    def _follow_repair(self) -> None:
        """Do in the object store that the run is in what was moved aside here."""
        if self._mirror is not None:
            self._mirror.settle()

    def _add(self, line: journal.Line, size: int) -> None:
        self.lines.append(line)
        self._size = size
        self._digests |= line.files
        onlookers.committed(self.path, line)

    def _place(self, name: str) -> Path:
        """Where a new committed file goes: a plain name in one of the folders for such files, inside the run."""
        folder, _, last = name.partition("/")
        path = self.path / folder / safe_name(last, "file name")
        if folder not in COMMITTED or path.exists() or path.parent.is_symlink() or last.endswith(TEMPORARY):
            raise UsageError(f"{name!r} is no new file in one of {', '.join(COMMITTED)}")
        make_folder(path.parent)
        return path

    def write_stats(self, stats: Mapping[str, Any]) -> None:
        """Rewrite ``stats.json``, for screens and people; nothing is ever derived from it but elapsed time."""
        write_atomic(self.path / "stats.json", sealed_json(stats))

    def stats(self) -> dict[str, Any]:
        """What ``stats.json`` says, or nothing."""
        try:
            content = (self.path / "stats.json").read_bytes()
        except OSError:
            return {}
        return json_of(content, sealed=self.sealed) or {}

    @property
    def sealed(self) -> bool:
        """Whether the small files of this run hold their own sums; those of older ones do not."""
        return bool(self.lines) and bool(self.lines[0].meta.get(SEALED))


def read(path: Path) -> Store:
    """A run for reading: never blocks, never writes; names what is damaged and shows what is good."""
    check_real(path)
    kept, damage = looked_at(path)
    return Store(path, journal.Lines(kept), damage)


def begun_with(path: Path) -> dict[str, Any]:
    """The identity of the run in that folder, nothing where there is none."""
    lines, _, _ = journal.read(path / "journal.jsonl")
    found: dict[str, Any] = lines[0].meta.get("identity", {}) if lines else {}
    return found


@contextmanager
def opened(
    name: str | None, config: Config, environment: Mapping[str, Any], *, fresh: bool = False, folder: Path | None = None
) -> Iterator[Store]:
    """The run of that name, or inside another one in ``folder``, for writing: made, or continued if it is the same."""
    path, made = _folder(name, config, fresh=fresh) if folder is None else (folder, False)
    config = config if folder is not None else {**config, **command_table()}  # a run inside another was asked by that
    if folder is not None:
        make_folder(folder)
    check_real(path)
    with held(path) as (lock, mirror):
        kept, damage = repaired(path, to_go_on=True)
        store = Store(path, journal.Lines(kept), damage, lock, mirror)
        store._follow_repair()
        _settle(store, config, environment)
        if mirror is not None:
            mirror.push()  # what says which run it is
        trust.remember(store.lines[0])
        onlookers.opened(path, store.stats())
        try:
            yield store
        except (UsageError, NothingToTest):
            if made and did_nothing(path, store.lines):  # a refused command leaves no folder behind
                unmade(path)
                if mirror is not None:
                    mirror.unmade = not path.exists()
            raise
        finally:
            store._lock = None


def _folder(name: str | None, config: Config, *, fresh: bool) -> tuple[Path, bool]:
    """The folder for a run of that name, and whether it was made just now."""
    if name is None or fresh:
        return new_folder(name or time.strftime(f"{config['run']['kind']}-%Y%m%d-%H%M%S")), True
    path = place(name)
    if path.is_symlink():
        raise UsageError(f"{path} is a symbolic link; run folders are real folders")
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file, not a run folder; use another --run name")
    return path, make_folder(path)


@contextmanager
def continued(path: Path) -> Iterator[Store]:
    """An existing run for writing, whatever its configuration: for work that adds to it."""
    if path.is_symlink():
        raise UsageError(f"{path} is a symbolic link; run folders are real folders, give its own path")
    check_real(path)
    with held(path) as (lock, mirror):
        kept, damage = repaired(path, to_go_on=False)
        store = Store(path, journal.Lines(kept), damage, lock, mirror)
        if not store.lines:
            raise UsageError(f"{path} holds no run")
        store._follow_repair()
        try:
            yield store
        finally:
            store._lock = None


def _settle(store: Store, config: Config, environment: Mapping[str, Any]) -> None:
    """Begin the run, or go on with it if it is the same; one that has no more than begun gives its name away."""
    path, campaign = store.path, store.path / "campaign.toml"
    was = store.lines[0].meta.get("identity", {}) if store.lines else _told(store) if campaign.exists() else None
    if was not in (None, identity(config)) and did_nothing(path, store.lines):
        _logger.warning("run %s had only begun, with another configuration, which is now in its quarantine", path.name)
        for name in ("campaign.toml", "environment.json", "stats.json", "journal.jsonl"):  # this order: a kill between
            if (path / name).exists():  # two of them leaves what the next command can take over too
                set_aside(path, path / name)
        store.lines, store._size, was = journal.Lines(), 0, None
        store._follow_repair()
    if was is not None:  # where there are no lines, they were lost, or the process died before the first one
        check_same(store.name, was, config)
    if store.lines:
        _logger.info("run %s is continued after %d commits", store.name, len(store.lines))
    text = sealed_text(toml.dumps(config).encode())
    _put(campaign, text)
    trust.remember_config(text, config)
    if not (path / "environment.json").exists() or not store.lines:
        _put(path / "environment.json", sealed_json(environment))
    if not store.lines:
        store.commit({}, kind="begin", format=journal.FORMAT, identity=identity(config), **{SEALED: True})


def _put(path: Path, content: bytes) -> None:
    """Write a file unless it says the same already."""
    if not path.is_file() or path.read_bytes() != content:
        write_atomic(path, content)


def _told(store: Store) -> dict[str, Any]:
    """The identity in ``campaign.toml``; nothing where it cannot be read, which fits no configuration."""
    try:
        return identity(store.config)
    except (OSError, ValueError):
        return {}
