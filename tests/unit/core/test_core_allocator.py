"""Asking glibc to keep blocks, without asking it here."""

import ctypes
from collections.abc import Iterator

import pytest

from assay.core.allocator import keep_blocks


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
