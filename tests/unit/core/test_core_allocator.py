"""What memory the process keeps: asking glibc without asking it here, and the limit on compiled convolutions."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from assay.core.allocator import few_kernels, keep_blocks


class FakeLibc:
    """A C library that writes down what it is asked."""

    def __init__(self, answer: int) -> None:
        self.answer = answer
        self.asked: list[tuple[int, int]] = []

    def mallopt(self, option: int, value: int) -> int:
        self.asked.append((option, value))
        return self.answer


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    keep_blocks.cache_clear()
    yield
    keep_blocks.cache_clear()


def test_both_thresholds_are_set_once(monkeypatch: pytest.MonkeyPatch) -> None:
    libc = FakeLibc(1)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: libc)
    assert keep_blocks() is True
    assert keep_blocks() is True
    assert libc.asked == [(-1, 1 << 30), (-3, 32 << 20)]


def test_a_library_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeLibc(0))
    assert keep_blocks() is False


def test_another_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert keep_blocks() is False


def test_a_library_without_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert keep_blocks() is False


LIMIT = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"


def test_few_kernels_are_kept_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT, "7")
    few_kernels()
    assert os.environ[LIMIT] == "7"
    monkeypatch.delenv(LIMIT)
    few_kernels()
    assert 1 <= int(os.environ[LIMIT]) < 1024


def test_the_limit_stands_before_a_target_runs_its_first_convolution(monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN reads it there and never again."""
    import assay

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(os.environ.get(LIMIT))
            return x.flatten(1)[:, :10]

    seen: list[str | None] = []
    monkeypatch.setenv(LIMIT, "7")  # so that it is put back
    monkeypatch.delenv(LIMIT)
    assay.load_target(Net(), data=assay.load_data("digits/test[:4]"))
    assert seen
    assert None not in seen


def test_importing_changes_no_environment() -> None:
    probe = "import os; a = dict(os.environ); import assay.engines.evaluate, assay.engines.fuzz; assert a == os.environ"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
