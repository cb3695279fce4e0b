"""What of a run folder is good, and setting aside what is not: nothing that a user may want to look at is deleted."""

import json
import logging
import time
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from assay.core import journal
from assay.core.files import TEMPORARY, is_plain, make_folder, sha256, storage_error, sync_folder, write_atomic
from assay.core.sealed import json_of, text_fits

_logger = logging.getLogger("assay")

COMMITTED = ("cases", "state", "models", "flaky")  # folders whose files must be listed in the journal
QUARANTINE = "quarantine"
SEALED = "sealed"  # what the first line says of a run whose small files hold their own sums
GUIDANCE = "guidance"  # a folder of files that later commits replace; the key under which a commit names its own
_OTHERS = ("LOCK", "journal.jsonl", "campaign.toml", "environment.json", "stats.json", "plot.csv", QUARANTINE, "report")
_TRACKED = ("events.jsonl", "tensorboard", "mlflow")  # what --log leaves in a run: it is no work, and never removed
_TRIES = 5
_PAUSE = 0.01  # seconds in which somebody who writes a line gets on with it
_SMALL = ("campaign.toml", "environment.json", "stats.json")
_ADDED = {"select": "assay select", "shrink": "assay shrink"}  # by kind: what the run's own command does not make again


def looked_at(path: Path) -> tuple[list[journal.Line], list[str]]:
    """The good lines of a run that somebody may be writing to, and what is damaged."""
    for _ in range(_TRIES):
        lines, good, size = journal.read(path / "journal.jsonl")
        bad = bad_guidance(path, lines)[1]
        if good == size and not bad:
            break
        time.sleep(_PAUSE)
        if journal.read(path / "journal.jsonl")[1:] == (good, size):
            break
    else:  # a line was half there, or two more commits came and replaced what we looked for, again and again
        bad, size = "", good
    kept = _good_lines(path, lines, [])
    return kept, _damage(path, lines, kept, good, size, bad)


def _damage(
    path: Path, lines: Sequence[journal.Line], kept: Sequence[journal.Line], good: int, size: int, bad: str
) -> list[str]:
    """What is damaged, in words; ``bad`` is the file of guidance that is."""
    damage = [] if good == size else [f"journal.jsonl: {size - good} bytes after line {len(lines)} are not valid"]
    _good_lines(path, lines[: len(kept) + 1], damage)
    damage += [f"{bad}: missing or changed since it was committed"] if bad else []
    return damage + [f"{name}: {what}" for name, what in bad_files(path, lines).items()]


def _good_lines(path: Path, lines: Sequence[journal.Line], damage: list[str]) -> list[journal.Line]:
    """The lines up to the first whose files are missing or changed."""
    for line in lines:
        for name, digest in line.files.items():
            try:
                fits = name.partition("/")[0] in COMMITTED and sha256((path / name).read_bytes()) == digest
            except OSError:
                fits = False
            if not fits:
                damage.append(f"{name}: missing or changed since it was committed")
                return list(lines[: line.step])
    return list(lines)


def bad_guidance(path: Path, lines: Sequence[journal.Line]) -> tuple[int, str]:
    """How many lines are left where the last one must find what was covered when it was written, and the file that is
    damaged where not all are.

    There are two such files, written in turn, so that a damaged one costs one commit. Where both are damaged all lines
    are left: what was found is worth more than the count of what was covered, which then begins anew.
    """
    bad = ""
    for line in reversed(lines):
        told = line.meta.get(GUIDANCE)
        if not isinstance(told, Mapping) or not is_plain(str(told.get("file"))):
            continue
        name = f"{GUIDANCE}/{told['file']}"
        try:
            fits = sha256((path / name).read_bytes()) == told.get("sha256")
        except OSError:
            fits = False
        if fits:
            return (line.step + 1, bad) if bad else (len(lines), "")
        if bad:
            break
        bad = name
    return len(lines), bad


def bad_files(path: Path, lines: Sequence[journal.Line]) -> dict[str, str]:
    """The small files of a run that are not as they were written, and what is wrong with them."""
    folders = {name: "a folder, not a file" for name in _SMALL if (path / name).is_dir()}
    if not lines:
        return folders
    sealed = bool(lines[0].meta.get(SEALED))
    bad = folders
    for name in _SMALL:
        try:
            content = (path / name).read_bytes()
        except OSError:
            if name in folders:
                continue
            if name != "stats.json" and (sealed or name == "campaign.toml"):
                bad[name] = "missing"
            continue
        fits = _config_fits if name == "campaign.toml" else _json_fits
        if not fits(content, lines[0], sealed=sealed):
            bad[name] = "changed since it was written"
    return bad


def _config_fits(content: bytes, begin: journal.Line, *, sealed: bool) -> bool:
    try:
        told = json.loads(json.dumps(tomllib.loads(content.decode())))
    except (ValueError, TypeError, RecursionError):
        return False
    was = begin.meta.get("identity", {})
    return (text_fits(content) or not sealed) and all(told.get(name) == table for name, table in was.items())


def _json_fits(content: bytes, begin: journal.Line, *, sealed: bool) -> bool:
    return json_of(content, sealed=sealed) is not None


def repaired(path: Path, *, to_go_on: bool) -> tuple[list[journal.Line], list[str]]:
    """The run cut back to its last good commit; everything bad or unlisted is moved to ``quarantine/``.

    What was covered matters only ``to_go_on`` with the run: work that adds to it needs nothing but what was found.
    """
    log = path / "journal.jsonl"
    lines, good, size = journal.read(log)
    kept = _good_lines(path, lines, [])
    whole, bad = bad_guidance(path, kept) if to_go_on else (len(kept), "")
    damage = _damage(path, lines, kept, good, size, bad)
    kept = kept[:whole]
    if len(kept) != len(lines):  # work is lost and done again: the time it took is not charged a second time
        _logger.warning("run %s: %s; %s", path.name, damage[-1], _lost(lines[len(kept) :]))
        if (path / "stats.json").exists():
            set_aside(path, path / "stats.json")
    # The same facts, written by another hand: line ends, spaces.
    other = sum(len(line.encode()) for line in lines) != good
    if good != size or len(kept) != len(lines) or other:
        set_aside(path, log, copy=True)
        write_atomic(log, b"".join(line.encode() for line in kept))
    listed = {name for line in kept for name in line.files}
    for folder in (*COMMITTED, GUIDANCE):
        if (path / folder).is_file():
            set_aside(path, path / folder)
    for folder in COMMITTED:
        for found in sorted((path / folder).rglob("*")):
            if found.is_file() and found.relative_to(path).as_posix() not in listed:
                set_aside(path, found)
        _clear_folders(path / folder)
    for name in (bad, *bad_files(path, lines)):
        if name and (path / name).exists():
            set_aside(path, path / name)
    _clear_temporary(path)
    return kept, damage


def _clear_folders(folder: Path) -> None:
    """Folders in one for files, empty now that files have been set aside: one may be in the way of a file."""
    for found in sorted(folder.rglob("*"), reverse=True):
        if found.is_dir():
            try:
                found.rmdir()
            except OSError as error:
                raise storage_error(error, found, 0) from error


def _lost(lines: Sequence[journal.Line]) -> str:
    """What becomes of commits that are cut off, in words."""
    added = [kind for line in lines if (kind := str(line.meta.get("kind"))) in _ADDED]
    told = [f"{len(lines) - len(added)} commits are done again"] if len(lines) > len(added) else []
    for kind in sorted(set(added)):
        told.append(f"{added.count(kind)} commits of {kind} are gone, {_ADDED[kind]} makes them again")
    return "; ".join(told)


def _clear_temporary(path: Path) -> None:
    """What a write that was cut off left: of a copy for the quarantine the original is still there."""
    for found in (path / QUARANTINE).glob(f"*{TEMPORARY}"):
        found.unlink(missing_ok=True)
    for folder in (path, path / GUIDANCE, path / "report", path / "report" / "images"):
        for found in folder.glob(f"*{TEMPORARY}"):
            set_aside(path, found)


def set_aside(path: Path, found: Path, *, copy: bool = False) -> None:
    """Into quarantine under a name of its own."""
    folder = path / QUARANTINE
    make_folder(folder)
    stem = found.relative_to(path).as_posix().replace("/", "_")
    number = next(i for i in range(1, 1_000_000) if not (folder / f"{stem}.{i}").exists())
    if copy:
        write_atomic(folder / f"{stem}.{number}", found.read_bytes())
        return
    try:
        found.rename(folder / f"{stem}.{number}")
        sync_folder(folder)
    except OSError as error:
        raise storage_error(error, folder / f"{stem}.{number}", 0) from error


def did_nothing(path: Path, lines: Sequence[journal.Line]) -> bool:
    """Whether a run has no more than begun: no commit, no answer, no folder with something in it."""
    if len(lines) > 1:
        return False
    for found in path.iterdir():
        if found.name not in (*_OTHERS, *_TRACKED) and (not found.is_dir() or any(found.iterdir())):
            return False
    lost = (*(f"{folder}_" for folder in COMMITTED), f"{GUIDANCE}_", "round-")
    return not any(found.name.startswith(lost) for found in (path / QUARANTINE).glob("*"))


def unmade(path: Path) -> None:
    """Remove a run folder that this very command made for nothing; one with anything else in it stays."""
    if {found.name for found in path.iterdir()} <= set(_OTHERS) - {QUARANTINE, "report"}:
        with suppress(OSError):  # it stays then, and blocks nobody
            for name in (*_OTHERS[1:6], _OTHERS[0]):
                (path / name).unlink(missing_ok=True)
            path.rmdir()
