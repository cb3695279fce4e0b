"""An empty store in memory for every test of object stores."""

from pathlib import Path

import pytest

from assay.core import remote, remote_run
from far import HERE, Move


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that answers at once, and a follower that comes only when it is called."""
    from fsspec.implementations.memory import MemoryFileSystem

    monkeypatch.setattr(MemoryFileSystem, "store", {})
    monkeypatch.setattr(MemoryFileSystem, "pseudo_dirs", [""])
    monkeypatch.setattr(remote, "PAUSE", 0.0)
    monkeypatch.setattr(remote_run, "SWEEP_SECONDS", 60.0)


@pytest.fixture
def move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Move:
    """Go to another machine: one with another cache."""

    def to(machine: str) -> None:
        monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / machine))

    to(HERE)
    return to
