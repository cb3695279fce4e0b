"""Work on rows of a data set in other processes: what travels to a worker, and how it does one job after the other."""

import warnings
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple

import numpy as np
import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import AssayError, ModelFailed, UsageError
from assay.engines.actors import Job, Result
from assay.subjects.sources.black_box import is_black_box

AT_ONCE = 4  # jobs a worker where their number is free: the last ones end at about the same time
ROOM = 2  # the one at work and the next, so that a worker never waits for the driver


@dataclass(frozen=True, slots=True)
class Rows:
    """Cases as arrays: those of one machine's workers all read the same memory, where tensors would be copied."""

    columns: Mapping[str, np.ndarray[Any, Any]]

    @staticmethod
    def of(cases: Cases) -> "Rows":
        columns = {"x": cases.x, "y": cases.y, "origin": cases.origin} | {f"info/{k}": v for k, v in cases.info.items()}
        return Rows({name: column.detach().cpu().contiguous().numpy() for name, column in columns.items()})

    def __len__(self) -> int:
        return len(self.columns["x"])

    def __getitem__(self, rows: slice) -> Cases:
        """A copy of a run of rows: what is shared cannot be written to, and nets may."""
        return _cases({name: torch.from_numpy(column[rows].copy()) for name, column in self.columns.items()})

    def shared(self) -> Cases:
        """All rows where they lie. They end the process that writes to them: take those you need by their numbers."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            return _cases({name: torch.from_numpy(column) for name, column in self.columns.items()})


def _cases(part: dict[str, Tensor]) -> Cases:
    x, y, origin = (part.pop(name) for name in ("x", "y", "origin"))
    return Cases(x, y, origin, {name.removeprefix("info/"): column for name, column in part.items()})


class Raised(NamedTuple):
    """What the user is to be told of, in the place of a result."""

    error: AssayError


class InTurn(Generic[Job, Result]):
    """A worker of a pool that does its jobs one by one, in the order in which they came.

    An error that the user is to be told of comes back in the place of the result: raised, it would overtake results of
    earlier jobs.
    """

    room = ROOM

    def __init__(self, work: Callable[[Job], Result], opened: ExitStack | None = None) -> None:
        """``opened`` is what stays open as long as the worker lives."""
        self.work, self.opened = work, opened
        self.waiting: deque[tuple[int, Job]] = deque()

    def step(self, jobs: list[tuple[int, Job]]) -> list[tuple[int, Result | Raised]]:
        self.waiting.extend(jobs)
        number, job = self.waiting.popleft()
        try:
            return [(number, self.work(job))]
        except AssayError as error:
            return [(number, Raised(error))]


def done(result: Result | Raised | ModelFailed, where: str) -> Result:
    """What a worker made of a job; what it could not do, ``where`` it was, is raised here."""
    if isinstance(result, Raised):
        raise result.error
    if isinstance(result, ModelFailed):  # worker after worker died under it
        raise ModelFailed(f"{result}, {where}; what was committed is kept, the same command goes on from there")
    return result


def refuse_black_box(model: Any, queries: int | None, ask: str, *, white_box: bool) -> None:
    """Refuse a model that only answers before it is asked anything; ``check_travels`` is for those that are made."""
    if queries is not None or ask.strip() or (is_black_box(model) and not white_box):
        raise UsageError(
            "--ray takes no model that only answers: its book of answers, its budget and its rate are kept in one "
            "process; leave --ray out"
        )


def slices(n: int, parts: int, whole: int) -> list[slice]:
    """About ``parts`` runs of ``n`` rows, each but the last a multiple of ``whole``: the batches are those of one run.

    >>> slices(1000, 3, 256)
    [slice(0, 512, None), slice(512, 1000, None)]
    """
    size = max(1, -(-n // (parts * whole))) * whole
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def on_cpu(columns: Mapping[str, Tensor]) -> dict[str, np.ndarray[Any, Any]]:
    """Tensors as arrays, which travel without being copied once more."""
    return {name: column.detach().cpu().numpy() for name, column in columns.items()}
