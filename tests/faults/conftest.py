"""What tests of faults have in common."""

from pathlib import Path

import pytest

import small


@pytest.fixture
def root(tmp_path: Path) -> Path:
    small.prepare(tmp_path)
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"
