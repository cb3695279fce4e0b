"""The run folder: committed work that survives kills, full disks and flipped bytes.

A commit writes its files (temporary name, fsync, rename, fsync of the folder) and then one journal line with their
digests. The line is the commit: what has no line did not happen and is moved to ``quarantine/`` at the next opening.
"""

import json
import logging
import os
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.core import journal, toml
from assay.core.errors import UsageError
from assay.core.files import TEMPORARY, canonical_json, safe_name, sha256, storage_error, sync_folder, write_atomic
from assay.core.lock import folder_lock, keep_alive

_logger = logging.getLogger("assay")

Config = Mapping[str, Mapping[str, Any]]
# Raising a budget or a requirement, or asking a black box at another rate, continues a run; everything else is what
# makes it this run.
NOT_IDENTITY = ("budget", "gate", "ask")
_COMMITTED = ("cases", "state", "models", "flaky")  # folders whose files must be listed in the journal


def runs_root() -> Path:
    """Where run folders lie: ``$ASSAY_RUNS``, else ``runs`` here."""
    return Path(os.environ.get("ASSAY_RUNS") or "runs")


def find_run(ref: str | Path) -> Path:
    """The folder of a run given by name or path."""
    for path in (Path(ref), runs_root() / ref):
        if (path / "journal.jsonl").is_file():
            return path
    raise UsageError(f"no run {str(ref)!r}: neither a run folder nor a name below {runs_root()}")


def identity(config: Config) -> dict[str, Any]:
    """The part of a configuration that makes two runs the same run."""
    kept: dict[str, Any] = json.loads(canonical_json({k: v for k, v in config.items() if k not in NOT_IDENTITY}))
    return kept


@dataclass(slots=True)
class Store:
    """A run folder, open for reading; for writing inside ``opened``."""

    path: Path
    lines: list[journal.Line]
    damage: list[str] = field(default_factory=list)
    _lock: int | None = None

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
        digest = next((line.files[name] for line in reversed(self.lines) if name in line.files), None)
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
        log = self.path / "journal.jsonl"
        try:
            for path, content in paths.items():
                write_atomic(path, content)
            journal.append(log, line)
        except BaseException:
            if not journal.ends_with(log, line):  # an interrupt may strike after the line got there
                for path in paths:
                    path.unlink(missing_ok=True)
                raise
            self.lines.append(line)
            raise
        self.lines.append(line)
        keep_alive(self._lock)

    def _place(self, name: str) -> Path:
        """Where a new committed file goes: a plain name in one of the folders for such files, inside the run."""
        folder, _, last = name.partition("/")
        path = self.path / folder / safe_name(last, "file name")
        if folder not in _COMMITTED or path.exists() or path.parent.is_symlink() or last.endswith(TEMPORARY):
            raise UsageError(f"{name!r} is no new file in one of {', '.join(_COMMITTED)}")
        if not path.parent.is_dir():
            try:
                path.parent.mkdir()
                sync_folder(self.path)
            except OSError as error:
                raise storage_error(error, path.parent, 0) from error
        return path

    def write_stats(self, stats: Mapping[str, Any]) -> None:
        """Rewrite ``stats.json``, for screens and people; nothing is ever derived from it but elapsed time."""
        write_atomic(self.path / "stats.json", json.dumps(stats, indent=1, allow_nan=False).encode())

    def stats(self) -> dict[str, Any]:
        """What ``stats.json`` says, or nothing."""
        try:
            told = json.loads((self.path / "stats.json").read_text())
        except (OSError, ValueError):
            return {}
        return told if isinstance(told, dict) else {}


def read(path: Path) -> Store:
    """A run for reading: never blocks, never writes; names what is damaged and shows what is good."""
    lines, good, size = journal.read(path / "journal.jsonl")
    damage = [] if good == size else [f"journal.jsonl: {size - good} bytes after line {len(lines)} are not valid"]
    kept = _good_lines(path, lines, damage)
    return Store(path, kept, damage)


def begun_with(path: Path) -> dict[str, Any]:
    """The identity of the run in that folder, nothing where there is none."""
    lines, _, _ = journal.read(path / "journal.jsonl")
    found: dict[str, Any] = lines[0].meta.get("identity", {}) if lines else {}
    return found


def new_folder(name: str) -> Path:
    """A run folder that did not exist: ``name``, else ``name-2``, ``name-3`` …"""
    root = runs_root()
    root.mkdir(parents=True, exist_ok=True)
    safe_name(name)
    for attempt in range(1, 10_000):
        path = root / (name if attempt == 1 else f"{name[:94]}-{attempt}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise UsageError(f"there are 10000 runs named {name}; choose another name")


@contextmanager
def opened(
    name: str | None, config: Config, environment: Mapping[str, Any], *, fresh: bool = False, folder: Path | None = None
) -> Iterator[Store]:
    """The run of that name, or inside another one in ``folder``, for writing: made, or continued if it is the same."""
    if folder is not None:
        path = folder
        path.mkdir(exist_ok=True)
    elif name is None or fresh:
        path = new_folder(name or time.strftime(f"{config['run']['kind']}-%Y%m%d-%H%M%S"))
    else:
        path = runs_root() / safe_name(name)
        if path.is_symlink():
            raise UsageError(f"{path} is a symbolic link; run folders are real folders")
        if path.exists() and not path.is_dir():
            raise UsageError(f"{path} is a file, not a run folder; use another --run name")
        path.mkdir(parents=True, exist_ok=True)
    with folder_lock(path) as lock:
        store = _repaired(path, lock)
        if store.lines:
            _logger.info("run %s is continued after %d commits", store.name, len(store.lines))
            _check_same(store.name, store.lines[0].meta.get("identity", {}), config)
            write_atomic(path / "campaign.toml", toml.dumps(config).encode())
        else:
            _begin(store, config, environment)
        try:
            yield store
        finally:
            store._lock = None


@contextmanager
def continued(path: Path) -> Iterator[Store]:
    """An existing run for writing, whatever its configuration: for work that adds to it."""
    with folder_lock(path) as lock:
        store = _repaired(path, lock)
        if not store.lines:
            raise UsageError(f"{path} holds no run")
        try:
            yield store
        finally:
            store._lock = None


def _begin(store: Store, config: Config, environment: Mapping[str, Any]) -> None:
    if (store.path / "campaign.toml").exists():  # the journal was lost, or the process died before its first line
        _check_same(store.name, _told(store), config)
    write_atomic(store.path / "campaign.toml", toml.dumps(config).encode())
    write_atomic(store.path / "environment.json", json.dumps(environment, indent=1).encode())
    store.commit({}, kind="begin", format=journal.FORMAT, identity=identity(config))


def _told(store: Store) -> dict[str, Any]:
    """The identity in ``campaign.toml``; nothing where it cannot be read, which fits no configuration."""
    try:
        return identity(store.config)
    except (OSError, ValueError):
        return {}


def _check_same(name: str, was: Mapping[str, Any], config: Config) -> None:
    """Refuse another configuration on an existing run, showing the difference."""
    asked = identity(config)
    if was == asked:
        return
    left, right = dict(_flat(was)), dict(_flat(asked))
    rows = [
        f"  {key}: {left.get(key, '(unset)')!s} in the run, {right.get(key, '(unset)')!s} asked"
        for key in sorted(left.keys() | right.keys())
        if left.get(key) != right.get(key)
    ]
    raise UsageError(
        f"run {name} was made with another configuration; use --fresh for a new run, or another name\n"
        + "\n".join(rows)
    )


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _good_lines(path: Path, lines: list[journal.Line], damage: list[str]) -> list[journal.Line]:
    """The lines up to the first whose files are missing or changed."""
    for line in lines:
        for name, digest in line.files.items():
            try:
                fits = sha256((path / name).read_bytes()) == digest
            except OSError:
                fits = False
            if not fits:
                damage.append(f"{name}: missing or changed since it was committed")
                return lines[: line.step]
    return lines


def _repaired(path: Path, lock: int) -> Store:
    """The run cut back to its last good commit; everything bad or unlisted is moved to ``quarantine/``."""
    log = path / "journal.jsonl"
    lines, good, size = journal.read(log)
    damage = [] if good == size else [f"journal.jsonl: {size - good} bytes after line {len(lines)} are not valid"]
    kept = _good_lines(path, lines, damage)
    listed = {name for line in kept for name in line.files}
    if len(kept) != len(lines):  # work is lost and done again: the time it took is not charged a second time
        _logger.warning("run %s: %s; %d commits are done again", path.name, damage[-1], len(lines) - len(kept))
        if (path / "stats.json").exists():
            _set_aside(path, path / "stats.json")
    if good != size or len(kept) != len(lines):
        _set_aside(path, log, copy=True)
        write_atomic(log, b"".join(line.encode() for line in kept))
    for folder in _COMMITTED:
        for found in sorted((path / folder).rglob("*")):
            if found.is_file() and found.relative_to(path).as_posix() not in listed:
                _set_aside(path, found)
    for found in path.glob(f"*{TEMPORARY}"):
        _set_aside(path, found)
    return Store(path, kept, damage, lock)


def _set_aside(path: Path, found: Path, *, copy: bool = False) -> None:
    """Into quarantine under a name of its own; we never delete what a user may want to look at."""
    folder = path / "quarantine"
    folder.mkdir(exist_ok=True)
    stem = found.relative_to(path).as_posix().replace("/", "_")
    number = next(i for i in range(1, 1_000_000) if not (folder / f"{stem}.{i}").exists())
    if copy:
        write_atomic(folder / f"{stem}.{number}", found.read_bytes())
    else:
        found.rename(folder / f"{stem}.{number}")
