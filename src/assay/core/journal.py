"""The journal: one checked line per commit. The line is the commit."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.core.errors import UsageError
from assay.core.files import canonical_json, sha256, storage_error, sync_folder

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


def decode(raw: bytes) -> Line | None:
    """The line, or None where its checksum does not fit."""
    try:
        told = json.loads(raw)
        seen = told.pop("sum")
        if seen != sha256(canonical_json(told).encode())[:16]:
            return None
        return Line(int(told["step"]), dict(told["files"]), dict(told["meta"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def read(path: Path) -> tuple[list[Line], int, int]:
    """The good lines from the start, the bytes they take, and the bytes of the file."""
    try:
        raw = path.read_bytes()
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


def append(path: Path, line: Line) -> None:
    """Add the line and make it durable; on failure the file is as it was."""
    content = line.encode()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise storage_error(error, path, len(content)) from error
    try:
        before = os.fstat(handle).st_size
        try:
            if os.write(handle, content) != len(content):
                raise OSError(28, "short write")
            os.fsync(handle)
            if before == 0:
                sync_folder(path.parent)
        except OSError as error:
            os.ftruncate(handle, before)
            raise storage_error(error, path, len(content)) from error
    finally:
        os.close(handle)
