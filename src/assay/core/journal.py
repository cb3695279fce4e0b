"""The journal: one checked line per commit. The line is the commit."""

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

from assay.core.errors import StorageError, UsageError
from assay.core.files import canonical_json, is_plain, sha256, storage_error, sync_folder, write_all

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Line:
    """A commit: its files with their digests, and what it says about itself."""

    step: int
    files: Mapping[str, str]
    meta: Mapping[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        body = {"step": self.step, "files": dict(self.files), "meta": dict(self.meta)}
        text = canonical_json(body)
        return f'{text[:-1]},"sum":"{sha256(text.encode())[:16]}"}}\n'.encode()


class Lines(Sequence[Line]):
    """The lines of a run, kept as the bytes they are: a run of many commits has thousands, and each is small so."""

    __slots__ = ("_raw",)

    def __init__(self, lines: Iterable[Line] = ()) -> None:
        self._raw = [line.encode() for line in lines]

    def __len__(self) -> int:
        return len(self._raw)

    @overload
    def __getitem__(self, place: int) -> Line: ...
    @overload
    def __getitem__(self, place: slice) -> list[Line]: ...
    def __getitem__(self, place: int | slice) -> Line | list[Line]:
        return [_line(raw) for raw in self._raw[place]] if isinstance(place, slice) else _line(self._raw[place])

    def __iter__(self) -> Iterator[Line]:
        return map(_line, self._raw)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lines) and self._raw == other._raw

    __hash__ = None  # type: ignore[assignment]  # it grows

    def append(self, line: Line) -> None:
        self._raw.append(line.encode())

    @property
    def size(self) -> int:
        """The bytes they take in the file."""
        return sum(map(len, self._raw))


def _line(raw: bytes) -> Line:
    """A line that was checked when it was read, or made here."""
    told = json.loads(raw)
    return Line(told["step"], told["files"], told["meta"])


def decode(raw: bytes) -> Line | None:
    """The line, or None where its checksum does not fit."""
    try:
        told = json.loads(raw)
        seen = told.pop("sum")
        if seen != sha256(canonical_json(told).encode())[:16]:
            return None
        line = Line(int(told["step"]), dict(told["files"]), dict(told["meta"]))
        return line if _has_form(line) else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _has_form(line: Line) -> bool:
    """Whether all parts are of the kind we write: a sum that fits says nothing of who wrote the line."""
    names = isinstance(line.meta.get("kind", ""), str) and isinstance(line.meta.get("format", FORMAT), int)
    told = line.meta.get("identity", {})
    tables = isinstance(told, dict) and all(isinstance(table, dict) for table in told.values())
    return names and tables and all(_is_place(name) and isinstance(told, str) for name, told in line.files.items())


def _is_place(name: str) -> bool:
    """Whether it is ``folder/file``, both plain: names in a journal become paths, and journals come from anywhere."""
    folder, _, last = name.partition("/")
    return is_plain(folder) and is_plain(last)


def _content(path: Path) -> bytes:
    """What a real file holds; a link is not followed, and a pipe not waited for."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise UsageError(f"{path} is no regular file")
        return file.read()


def read(path: Path) -> tuple[list[Line], int, int]:
    """The good lines from the start, the bytes they take, and the bytes of the file."""
    try:
        raw = _content(path)
    except FileNotFoundError:
        return [], 0, 0
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    lines: list[Line] = []
    good = 0
    for piece in raw.splitlines(keepends=True):
        line = decode(piece) if piece.endswith(b"\n") else None
        if line is None or line.step != len(lines):
            break
        if line.step == 0 and line.meta.get("format", FORMAT) > FORMAT:
            raise UsageError(
                f"{path.parent} was written by a newer Assay (format {line.meta['format']}); upgrade to open it"
            )
        lines.append(line)
        good += len(piece)
    return lines, good, len(raw)


def ends_with(path: Path, line: Line) -> bool:
    """Whether the line is the last of the journal."""
    try:
        return path.read_bytes().endswith(line.encode())
    except OSError:
        return False


def append(path: Path, line: Line, *, at: int | None = None) -> int:
    """Add the line and make it durable; the size of the file then. ``at`` is the size it must have before.

    On failure the file is as it was. After a failed fsync nobody knows what of the line is on the disk: it counts as
    not written and is cut off. Where even that fails the line may be found whole, which its files then are too, or
    torn, and then the next opening cuts it off; but nothing may be added after it, which ``at`` sees to.
    """
    content = line.encode()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise storage_error(error, path, len(content)) from error
    try:
        before = os.fstat(handle).st_size
        if at is not None and before != at:
            raise StorageError(
                f"{path} has {before} bytes where this command left {at}: somebody else wrote to it, or a failed write "
                "could not be undone; what was committed before is intact, the same command goes on from there"
            )
        try:
            write_all(handle, content)
            os.fsync(handle)
            if before == 0:
                sync_folder(path.parent)
        except BaseException as error:
            with suppress(OSError):  # what that leaves is told above
                os.ftruncate(handle, before)
                os.fsync(handle)
            if isinstance(error, OSError):
                raise storage_error(error, path, len(content)) from error
            raise
        return before + len(content)
    finally:
        os.close(handle)
