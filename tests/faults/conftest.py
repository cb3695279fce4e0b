"""What tests of faults have in common."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import small
from commands import Nursery, nursery


@pytest.fixture(scope="module")
def home() -> Iterator[Nursery]:
    with nursery() as found:
        yield found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    small.prepare(tmp_path)
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"
