"""How much fits in memory, known to all the work of one command once a part of it has found out."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class Room:
    """How many rows fit at once, as far as is known."""

    rows: float = math.inf


_room: ContextVar[Room | None] = ContextVar("room", default=None)


def room() -> Room | None:
    """That of the command at work, None outside of one."""
    return _room.get()


@contextmanager
def one_room() -> Iterator[None]:
    """What did not fit in one of the chunks used in this block is tried in none of the others; blocks may be nested."""
    if _room.get() is not None:
        yield
        return
    before = _room.set(Room())
    try:
        yield
    finally:
        _room.reset(before)
