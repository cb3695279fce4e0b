"""How often nets are asked in this process: inputs answered, and inputs whose gradient was taken."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

_open: list["Passes"] = []  # of whoever counts; threads of a campaign count in the same ones


@dataclass(slots=True)
class Passes:
    """Rows that went through nets, forwards and back; of a training step, through all its losses."""

    forward: int = 0
    gradient: int = 0

    @property
    def all(self) -> int:
        return self.forward + self.gradient


@contextmanager
def counted() -> Iterator[Passes]:
    """Counts as long as the block lasts; blocks may be nested."""
    mine = Passes()
    _open.append(mine)
    try:
        yield mine
    finally:
        _open[:] = [one for one in _open if one is not mine]


@contextmanager
def uncounted() -> Iterator[None]:
    """What is asked in this block counts for nobody: measuring what a work came to is no part of it."""
    counting = _open[:]
    _open.clear()
    try:
        yield
    finally:
        _open[:] = counting


def note(forward: int = 0, gradient: int = 0) -> None:
    """So many rows more."""
    for one in _open:
        one.forward += forward
        one.gradient += gradient


def answered(out: Tensor) -> None:
    """A batch was answered; where its gradient is taken later, that counts too."""
    if _open:
        note(forward=len(out))
        if out.requires_grad:
            out.register_hook(lambda slope: note(gradient=len(slope)))
