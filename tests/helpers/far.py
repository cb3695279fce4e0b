"""Runs in a store in memory, and machines that share it: each has a cache of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.core.remote import Objects
from assay.core.store import Store, opened, read

CONFIG: dict[str, dict[str, Any]] = {"run": {"kind": "fuzz", "seed": 1}, "budget": {"time": "10m"}}
URL = "memory://bucket/runs/a"
HERE, THERE = "here", "there"
Move = Callable[[str], None]


def objects(url: str = URL) -> dict[str, bytes]:
    found = Objects(url)
    return {name: found.read(name) or b"" for name in found.all() if not name.startswith("LOCK/")}


def commit(run: Store, *numbers: int) -> None:
    for i in numbers:
        run.commit({f"cases/{i}": bytes([i]) * 10}, kind="found", i=i)


def work(*numbers: int, url: str = URL) -> Path:
    with opened(url, CONFIG, {}) as run:
        commit(run, *numbers)
        return run.path


def files(path: Path) -> list[str]:
    return sorted(name for line in read(path).lines for name in line.files)


def cut_short(monkeypatch: pytest.MonkeyPatch, part: str, *, after: bool, error: BaseException) -> None:
    """Let the writing of an object with ``part`` in its name end in an error, before or after it got there."""
    real = Objects.create

    def create(self: Objects, name: str, content: bytes) -> bool:
        if part not in name:
            return real(self, name, content)
        if after:
            real(self, name, content)
        raise error

    monkeypatch.setattr(Objects, "create", create)
