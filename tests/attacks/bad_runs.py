"""Run folders that somebody else made with bad intent: every sum fits, for whoever writes a line can compute it."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay.core.files import canonical_json, sha256

Change = Callable[[list[dict[str, Any]]], None]


def retold(run: Path, change: Change) -> Path:
    """The run with its journal changed, and the sums made to fit."""
    log = run / "journal.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        del line["sum"]
    change(lines)
    log.write_bytes(b"".join(signed(line) for line in lines))
    return run


def signed(line: dict[str, Any]) -> bytes:
    """A journal line with a sum that fits."""
    text = canonical_json(line)
    return f'{text[:-1]},"sum":"{sha256(text.encode())[:16]}"}}\n'.encode()


def telling(table: str, key: str, value: Any) -> Change:
    """Another value in the identity of the run."""

    def change(lines: list[dict[str, Any]]) -> None:
        lines[0]["meta"]["identity"].setdefault(table, {})[key] = value

    return change


def all_of(*changes: Change) -> Change:
    """Several changes at once."""

    def change(lines: list[dict[str, Any]]) -> None:
        for each in changes:
            each(lines)

    return change


def listing(name: str, content: bytes) -> Change:
    """A file of the journal's last line that lies where the name leads."""

    def change(lines: list[dict[str, Any]]) -> None:
        lines[-1]["files"][name] = sha256(content)

    return change


def evil_file(folder: Path, canary: Path) -> Path:
    """A Python file that leaves a canary as soon as it is run, and has anything anybody could ask it for."""
    path = folder / "evil.py"
    path.write_text(
        f"import pathlib\npathlib.Path({str(canary)!r}).touch()\n"
        "def make(*given, **named):\n    import torch\n    return torch.nn.Flatten()\n"
    )
    return path


def pipe(path: Path) -> None:
    """A pipe that nobody writes to: who opens it to read waits for ever."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)
