"""Who looks on while runs are written: told of every run that is opened and of every commit, never asked."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

from assay.core.journal import Line


class Onlooker(Protocol):
    """It is called between two steps of the work: it takes no time and raises nothing."""

    def opened(self, path: Path, stats: Mapping[str, Any]) -> None: ...

    def committed(self, path: Path, line: Line) -> None: ...


_now: ContextVar[Onlooker | None] = ContextVar("assay_onlooker", default=None)


@contextmanager
def looking_on(who: Onlooker) -> Iterator[None]:
    """Until the block ends, ``who`` is told of what this thread writes to runs."""
    before = _now.set(who)
    try:
        yield
    finally:
        _now.reset(before)


def opened(path: Path, stats: Mapping[str, Any]) -> None:
    """A run, or one inside another, is open for writing; ``stats`` is what it told of itself last."""
    if (who := _now.get()) is not None:
        who.opened(path, stats)


def committed(path: Path, line: Line) -> None:
    """A commit is durable."""
    if (who := _now.get()) is not None:
        who.committed(path, line)
