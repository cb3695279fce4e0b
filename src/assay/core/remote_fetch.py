"""Making the folder here what an object store holds of a run; the store decides, and nothing is written to it."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from assay.core import journal
from assay.core.errors import UsageError
from assay.core.files import is_plain, make_folder, sha256, write_atomic
from assay.core.remote import Objects, Stamp, md5_of
from assay.core.remote_lease import FOLDER
from assay.core.remote_names import JOURNAL, LINE, is_strict, line_name
from assay.core.remote_record import Record
from assay.core.repair import GUIDANCE, bad_guidance

_TOGETHER = 8  # objects that are fetched at once
_TRIES = 3  # somebody may be writing: what was covered is replaced by each commit


def fetch(objects: Objects, folder: Path, record: Record) -> set[str]:
    """Bring the folder up to date; the names of the objects there are."""
    for _ in range(_TRIES):
        there = {name: told for name, told in objects.all().items() if not name.startswith(f"{FOLDER}/")}
        if not there:
            _forget_gone(there, folder, record)  # the run was removed from the store; the lock here stays
            return set()
        make_folder(folder)
        _forget_gone(there, folder, record)
        with ThreadPoolExecutor(_TOGETHER) as workers:
            files = [name for name in there if not LINE.fullmatch(name) and _differs(name, there[name], folder, record)]
            list(workers.map(partial(_get, objects, there, folder, record), files))
            runs = {match[1] for name in there if (match := LINE.fullmatch(name))}
            for inside in sorted(runs):
                _journal(objects, inside, there, folder, record, workers)
                _committed(objects, inside, folder, record, workers)
        if not any(bad_guidance(folder / inside, journal.read(folder / inside / JOURNAL)[0])[1] for inside in runs):
            break
    return set(there)


def _forget_gone(there: Mapping[str, Stamp], folder: Path, record: Record) -> None:
    """Take away what the store had and has no longer."""
    gone = [name for name in record.names() if name not in there]
    for name in gone:
        record.forget(name)
        line = LINE.fullmatch(name)
        if line is None:
            (folder / name).unlink(missing_ok=True)
        elif line_name(line[1], 0) not in there:
            (folder / line[1] / JOURNAL).unlink(missing_ok=True)


def _differs(name: str, stamp: Stamp, folder: Path, record: Record) -> bool:
    """Whether the object is to be fetched. Beside the commits, a file that changed here only is the newer one."""
    path = folder / name
    try:
        here = path.stat()
    except OSError:
        return True
    if record.token(name) == stamp.token:
        return is_strict(name) and not record.unchanged(name, here)
    if stamp.size == here.st_size and stamp.md5 and md5_of(path.read_bytes()) == stamp.md5:
        record.note(name, here, stamp.token)
        return False
    return True


def _get(objects: Objects, there: Mapping[str, Stamp], folder: Path, record: Record, name: str) -> None:
    path = folder / name
    if path.is_dir():
        raise UsageError(f"{objects.url}/{name} is an object where a folder is wanted; move it away")
    if objects.get(name, path):
        record.note(name, path.stat(), there[name].token)


def _journal(
    objects: Objects, inside: str, there: Mapping[str, Stamp], folder: Path, record: Record, workers: ThreadPoolExecutor
) -> None:
    """Put the journal of a run together from the objects of its lines.

    What is bad stays in it, for the repair to find: a line that is not whole, one after a gap, or one that was not
    written after the one before it.
    """
    path = folder / inside / JOURNAL
    old = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
    steps = sorted(int(match[2]) for name in there if (match := LINE.fullmatch(name)) and match[1] == inside)

    def content(step: int) -> bytes:
        name = line_name(inside, step)
        if step < len(old) and record.token(name) == there[name].token and journal.decode(old[step]) is not None:
            return old[step]
        found = objects.read(name) or b""
        record.note(name, None, there[name].token)
        return found

    pieces: list[bytes] = []
    for step, raw in zip(steps, workers.map(content, steps), strict=True):
        line, _, seal = raw.partition(b"\n")
        if step != len(pieces):
            pieces.append(b"# lines are missing here\n")
        elif seal and not _follows(seal, pieces[-1] if pieces else b""):
            pieces.append(b"# the next line was not written after the one before\n")
        pieces.append(line + b"\n")
    whole = b"".join(pieces)
    if whole != b"".join(old):
        make_folder(path.parent)
        write_atomic(path, whole)


def _follows(seal: bytes, before: bytes) -> bool:
    """Whether the line above a seal was written after the line before it."""
    try:
        told = json.loads(seal)
        return isinstance(told, dict) and told.get("after") == sha256(before)
    except ValueError:
        return False


def _committed(objects: Objects, inside: str, folder: Path, record: Record, workers: ThreadPoolExecutor) -> None:
    """Fetch once more what does not fit its line: a disk here may be damaged, or the line newer than our list."""
    lines = journal.read(folder / inside / JOURNAL)[0]

    def look(wanted: tuple[str, str]) -> None:
        name, digest = wanted
        path = folder / inside / name
        with suppress(OSError):
            if sha256(path.read_bytes()) == digest:
                return
        if objects.get(inside + name, path):
            record.note(inside + name, path.stat(), "")  # whatever it is, the next time it is looked at anew

    list(workers.map(look, _wanted(lines)))


def _wanted(lines: list[journal.Line]) -> Iterator[tuple[str, str]]:
    for line in lines:
        yield from line.files.items()
    told = next((line.meta[GUIDANCE] for line in reversed(lines) if isinstance(line.meta.get(GUIDANCE), Mapping)), None)
    if told is not None and is_plain(str(told.get("file"))):
        yield f"{GUIDANCE}/{told['file']}", str(told.get("sha256"))
