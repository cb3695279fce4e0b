"""Counting, timing and judging attacks, ours and the peers', all in the same way."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.core import norms
from assay.core.losses import cross_entropy
from assay.core.norms import Norm
from assay.subjects.sources.module import ModuleTarget

LONG = 5.0  # seconds; a job that takes longer needs no turn to warm up
SHORT = 0.3  # seconds; a shorter job is done several times over for one reading


@dataclass(slots=True)
class Passes:
    """Rows that went through the net, forwards and backwards."""

    forward: int = 0
    backward: int = 0


@contextmanager
def counting(net: nn.Module) -> Iterator[Passes]:
    """Counts what passes through the module, whoever calls it."""
    seen = Passes()

    def back(grad: Tensor) -> None:
        rows = len(grad)
        functorch: Any = torch._C._functorch
        while functorch.is_batchedtensor(grad):  # several gradients of one output at once
            grad = functorch.get_unwrapped(grad)
            rows = grad.numel() // grad.shape[-1]
        seen.backward += rows

    def forth(module: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> None:
        seen.forward += len(given[0])
        if out.requires_grad:
            out.register_hook(back)

    hook = net.register_forward_hook(forth)
    try:
        yield seen
    finally:
        hook.remove()


@dataclass(frozen=True, slots=True)
class Bare:
    """Seconds of one bare pass of the batch: forward alone, and forward with backward to the input."""

    forward: float
    both: float

    def floor(self, passes: Passes, batch: int) -> float:
        """What the counted passes cost by themselves."""
        pairs = min(passes.forward, passes.backward)
        more = (passes.forward - pairs) * self.forward + (passes.backward - pairs) * (self.both - self.forward)
        return (pairs * self.both + more) / batch


def bare_jobs(target: ModuleTarget, x: Tensor, y: Tensor) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """What no attack can do without: one forward pass of the batch, and one with the gradient at the input."""

    def forward() -> None:
        with torch.no_grad():
            target(x)

    def both() -> None:
        at = x.detach().requires_grad_()
        torch.autograd.grad(cross_entropy(target(at), y).sum(), at)

    return forward, both


def measured(
    jobs: Mapping[str, Callable[[], Any]], target: ModuleTarget, x: Tensor, y: Tensor, repeats: int, budget: float
) -> tuple[dict[str, float], Bare]:
    """Median seconds of each job, and of the bare passes beside them.

    Jobs take turns, forwards and backwards, so that drift hits all alike, and bare passes come before each. A first
    turn warms up (a job of seconds needs none). Short jobs are done several times for one reading. Turns end when the
    ``budget`` of seconds is spent, but never before one in each order.
    """
    times: dict[str, list[float]] = {name: [] for name in jobs}
    bare: tuple[list[float], list[float]] = ([], [])
    counts = dict.fromkeys(jobs, 1)
    began = time.perf_counter()
    for turn in range(repeats + 1):
        for name in jobs if turn % 2 else reversed(list(jobs)):
            with target.ready():
                for job, taken in zip(bare_jobs(target, x, y), bare, strict=True):
                    taken += [_clocked(job) for _ in range(5)]
            took = _clocked(jobs[name], counts[name])
            if turn or took > LONG:
                times[name].append(took)
            else:
                counts[name] = max(1, round(SHORT / took))
        if turn and time.perf_counter() - began > budget:
            break
    forward, both = (statistics.median(taken) for taken in bare)
    return {name: statistics.median(values) for name, values in times.items()}, Bare(forward, both)


def _clocked(job: Callable[[], Any], times: int = 1) -> float:
    _wait()
    start = time.perf_counter()
    for _ in range(times):
        job()
    _wait()
    return (time.perf_counter() - start) / times


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many of the rightly classified inputs were really fooled, within ball and bounds, and how far they moved."""

    fooled: int
    n: int
    l2: float

    @property
    def success(self) -> float:
        return self.fooled / max(self.n, 1)


def judged(
    target: ModuleTarget, x: Tensor, y: Tensor, made: Tensor, ball: tuple[float, Norm] | None, goal: Tensor | None
) -> Verdict:
    """The examples judged anew; with ``goal`` only those that got there count."""
    made = made.detach().to(x)
    with torch.no_grad():
        right = target(x).argmax(1) == y
        answers = target(made).argmax(1)
    hit = right & ((answers != y) if goal is None else (answers == goal))
    low, high = target.spec.bounds
    hit &= ((made >= low - 1e-5) & (made <= high + 1e-5)).flatten(1).all(1)
    if ball is not None:
        hit &= norms.size(made - x, ball[1]) <= ball[0] * (1 + 1e-4) + 1e-5
    away = norms.size(made - x, "l2")[hit]
    return Verdict(int(hit.sum()), int(right.sum()), float(away.mean()) if len(away) else float("nan"))
