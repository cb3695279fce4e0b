"""The answers a target has given, by the content of what it was asked, and the count of all questions.

With a path every entry is a checked line that is durable before anything goes on: a line that says how many inputs are
about to be sent comes before they are, one with their answers after. So a kill at any moment loses neither a count nor
an answer that had come.
"""

import base64
import logging
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core import journal
from assay.core.errors import UsageError
from assay.core.files import make_folder, write_atomic
from assay.subjects.queries import Queries, Why

log = logging.getLogger("assay")

_KEY = 16  # bytes of a content hash
Rows = NDArray[np.float32]


def content_key(row: Rows) -> bytes:
    """What an input is known by: a digest of its shape and its values as float32."""
    told = repr(row.shape).encode() + np.ascontiguousarray(row, "<f4").tobytes()
    return blake2b(told, digest_size=_KEY).digest()


class AnswerBook:
    """The answers of one target; ``queries`` is counted along."""

    def __init__(self, queries: Queries) -> None:
        self.queries = queries
        self.path: Path | None = None
        self._answers: dict[bytes, list[Rows]] = {}
        self._entries: list[Mapping[str, Any]] = []  # what was noted before there was a file
        self._lines = 0
        self._written = 0  # questions that a file tells of, which we had open and left

    def __len__(self) -> int:
        return len(self._answers)

    def of(self, key: bytes) -> Sequence[Rows]:
        """The answers to an input, in the order they came."""
        return self._answers.get(key, ())

    def all(self) -> Iterable[Sequence[Rows]]:
        """The answers to every input."""
        return self._answers.values()

    def take(self, n: int, why: Why) -> None:
        """Count ``n`` inputs before they are sent."""
        self.queries.allow(n)
        self._write({"take": n, "why": why, "asked": self.queries.asked + n})
        self.queries.take(n, why)

    def add(self, keys: Sequence[bytes], rows: Rows, why: Why) -> None:
        """Keep what was answered."""
        rows = np.ascontiguousarray(rows, "<f4")
        self._write(
            {
                "keys": base64.b64encode(b"".join(keys)).decode(),
                "answers": base64.b64encode(rows.tobytes()).decode(),
                "why": why,
                "asked": self.queries.asked,
            }
        )
        self._remember(keys, rows)

    def keep(self, path: Path, fingerprint: str, about: Mapping[str, Any]) -> None:
        """Go on in a file: what it holds is known from now on, what was asked before is added to it.

        ``fingerprint`` says whose answers these are; those of another target are refused. ``about`` is what else a
        later command wants to know of the target.
        """
        if self.path is not None:
            raise UsageError(f"the answers are kept in {self.path} already")
        entries = _read(path)
        if entries and _last(entries, "target") != fingerprint:
            raise UsageError(
                f"{path} holds the answers of another target, or of this one asked in another way; "
                "use --fresh for a new run, or another name"
            )
        own, self._entries, self._answers = self._entries, [], {}
        self.path, self._lines = path, len(entries)
        if not entries:
            self._write({"format": journal.FORMAT, "target": fingerprint, "about": dict(about)})
        for entry in entries:
            if "keys" in entry:
                self._remember(*_decoded(entry))
        asked, before = _counted(entries)["asked"], self._written
        # An answer that the file has already is not written again: that attempt counts as one in vain.
        added = [e for e in own if "keys" not in e or not all(key in self._answers for key in _keys(e))]
        for entry in added:
            self._write({**entry, "asked": entry["asked"] - before + asked})
            if "keys" in entry:
                self._remember(*_decoded(entry))
        self.queries.restore(**_counted([*entries, {"asked": asked + self.queries.asked - before}, *added]))
        self._written = 0

    def settle(self, fingerprint: str, about: Mapping[str, Any]) -> None:
        """Note what the target is known by now that it has answered; of several such notes the last one counts."""
        if self.path is not None:
            self._write({"target": fingerprint, "about": dict(about), "asked": self.queries.asked})

    def leave(self) -> None:
        """Write no further to the file, which holds everything so far; it can be gone on in, by ``keep``."""
        self.path, self._lines, self._written = None, 0, self.queries.asked

    def _remember(self, keys: Sequence[bytes], rows: Rows) -> None:
        for key, row in zip(keys, rows, strict=True):
            self._answers.setdefault(key, []).append(row)

    def _write(self, entry: Mapping[str, Any]) -> None:
        if self.path is None:
            self._entries.append(entry)
            return
        journal.append(self.path, journal.Line(self._lines, {}, entry))
        self._lines += 1


def told_before(path: Path) -> Mapping[str, Any]:
    """What the file says about its target, nothing where there is no such file."""
    lines, good, size = journal.read(path)
    entries = [line.meta for line in lines]
    if entries and good != size:
        entries += [line.meta for line in _sound(path.read_bytes()[good:])]
    about: Mapping[str, Any] = _last(entries, "about") or {}
    return about


def _last(entries: Sequence[Mapping[str, Any]], name: str) -> Any:
    """What the last entry that says something of it says, None where none does."""
    return next((entry[name] for entry in reversed(entries) if entry.get(name)), None)


def _sound(raw: bytes) -> list[journal.Line]:
    """The lines after a damaged one that are whole themselves."""
    pieces = raw.splitlines(keepends=True)
    return [line for piece in pieces if piece.endswith(b"\n") and (line := journal.decode(piece)) is not None]


def _counted(entries: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How often the target was asked: by the running count, which outlives a damaged line, and by what was answered."""
    counts = {"asked": max((int(entry.get("asked", 0)) for entry in entries), default=0), "first": 0, "repeats": 0}
    for entry in entries:
        if "keys" in entry:
            counts[entry["why"]] += len(_keys(entry))
    return counts


def _keys(entry: Mapping[str, Any]) -> list[bytes]:
    raw = base64.b64decode(entry["keys"])
    return [raw[i : i + _KEY] for i in range(0, len(raw), _KEY)]


def _decoded(entry: Mapping[str, Any]) -> tuple[list[bytes], Rows]:
    keys = _keys(entry)
    flat = np.frombuffer(base64.b64decode(entry["answers"]), "<f4").astype(np.float32)
    return keys, flat.reshape(len(keys), -1)


def _read(path: Path) -> list[Mapping[str, Any]]:
    """The good entries of a file. What is damaged is told, and the file set aside before it is mended."""
    lines, good, size = journal.read(path)
    entries = [line.meta for line in lines]
    if good == size:
        return entries
    raw = path.read_bytes()
    pieces = raw[good:].splitlines(keepends=True)
    later = _sound(raw[good:])
    if not entries:  # the line that says whose answers these are
        raise UsageError(f"{path} is damaged at its beginning; move it away to ask everything again")
    entries += [line.meta for line in later]
    aside = _set_aside(path, raw)
    if later or len(pieces) > 1:
        log.warning(
            "%s is damaged after line %d; the sound lines are kept, the file is now %s", path, len(lines), aside
        )
    else:
        log.warning("%s ends in a torn line, which is cut off (the file is kept as %s)", path, aside)
    write_atomic(path, b"".join(journal.Line(i, {}, entry).encode() for i, entry in enumerate(entries)))
    return entries


def _set_aside(path: Path, raw: bytes) -> Path:
    folder = path.parent / "quarantine"
    make_folder(folder)
    number = next(i for i in range(1, 1_000_000) if not (folder / f"{path.name}.{i}").exists())
    write_atomic(folder / f"{path.name}.{number}", raw)
    return folder / f"{path.name}.{number}"
