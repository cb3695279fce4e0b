"""Several trainings on one GPU at once: threads that take turns, so that only one of them ever gives orders.

A small net's kernels leave most of a GPU idle, and kernels of different streams run side by side. Threads that really
run at once are no way to get there: capturing a CUDA graph and torch's random state are shared by the process, and
trying it ended in illegal memory accesses.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import nn

from assay.stages.trainers.watch import State

Job = TypeVar("Job")
BATCHES = 8  # steps that one training queues on the device before the next has its turn


class Turns:
    """Who watches a training and passes the turn on between its steps; without other threads it does nothing."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._taken = False
        self._steps = 0

    def __enter__(self) -> None:
        with self._mutex:
            if not self._taken:
                self._taken = True
                return
            mine = threading.Event()
            self._waiting.append(mine)
        mine.wait()

    def __exit__(self, *error: object) -> None:
        with self._mutex:
            self._taken = bool(self._waiting)
            if self._taken:
                self._waiting.popleft().set()

    def resume(self) -> State | None:
        return None

    def batch(self, epoch: int, done: float) -> None:
        self._steps += 1
        if self._steps % BATCHES == 0 and self._waiting:
            mine = threading.Event()
            with self._mutex:
                self._waiting.append(mine)
                self._waiting.popleft().set()
            mine.wait()

    def epoch(self, state: State, net: nn.Module) -> None: ...


def side_by_side(work: Callable[[Job], None], jobs: Iterable[Job], workers: int, turns: Turns) -> None:
    """Do the jobs, so many at once, each on a stream of its own; the first error ends all."""
    torch.cuda.synchronize()
    # One graph that lives on: with the last one torch would let go of the random state that graphs read.
    keep = torch.cuda.CUDAGraph()
    at = torch.zeros(1, device="cuda")
    with torch.cuda.graph(keep):
        at.add_(1)

    def one(job: Job) -> None:
        with turns, torch.cuda.stream(torch.cuda.Stream()):
            work(job)
            torch.cuda.current_stream().synchronize()

    with ThreadPoolExecutor(workers) as threads:
        for done in [threads.submit(one, job) for job in jobs]:
            done.result()
    keep.reset()
