"""A worker's process on Ray: it holds one thing, does the jobs it is given, and says what there was to say."""

import contextvars
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

import assay
from assay.core import deadline
from assay.core.allocator import few_kernels
from assay.core.errors import AssayError, UsageError
from assay.core.extras import needed
from assay.engines.cluster import Cluster, threads_for, wanted
from assay.engines.session import session

log = logging.getLogger("assay")

Job = TypeVar("Job")
Result = TypeVar("Result")

USER_MODULE = "_assay_user_"  # how the names of modules begin that were loaded from files users named


class Worker(Protocol[Job, Result]):
    """What an actor holds. Results are pure functions of their jobs: one that is done twice gives the same twice."""

    @property
    def room(self) -> int:
        """How many jobs it likes to hold at once."""
        ...

    def step(self, jobs: list[tuple[int, Job]]) -> list[tuple[int, Result]]:
        """Take these jobs, work until at least one of those it holds is done, and give what is done."""
        ...


class Lost(Exception):
    """A worker is gone, with what it held."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What every worker of a pool must agree on with the process that started it."""

    deterministic: bool
    threads: int
    call_limit: float | None
    versions: tuple[str, str]  # of assay and torch


def versions() -> tuple[str, str]:
    return assay.__version__, str(torch.__version__)


class Actor:
    """The process of one worker; calls come one after another, in the main thread."""

    def __init__(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the business of the process that gives the jobs
        self._open = ExitStack()
        self._said = _Said()
        self._held: set[int] = set()
        self._worker: Worker[Any, Any]
        self._context = contextvars.copy_context()

    def begin(self, make: Callable[[], Worker[Any, Any]], setting: Setting) -> tuple[int, list[tuple[int, str]]]:
        """Make what this actor holds; how many jobs it likes to hold, and what was said."""
        if versions() != setting.versions:
            there, here = (f"assay {a} with torch {t}" for a, t in (versions(), setting.versions))
            raise UsageError(f"a worker has {there}, this process {here}: results would differ; install the same")
        log.addHandler(self._said)
        few_kernels()  # the target that comes was made in another process
        if not setting.deterministic:
            torch.set_num_threads(setting.threads)
        self._context.run(self._open.enter_context, session(deterministic=setting.deterministic))
        self._open.enter_context(deadline.call_limit(setting.call_limit))
        self._worker = self._context.run(make)
        return self._worker.room, self._said.take()

    def step(self, jobs: list[tuple[int, Any]]) -> tuple[list[tuple[int, Any]], list[tuple[int, str]]]:
        """What is done, and what was said meanwhile."""
        self._held |= {number for number, _ in jobs}
        done = self._context.run(self._worker.step, jobs) if self._held else []
        self._held -= {number for number, _ in done}
        return done, self._said.take()


class _Said(logging.Handler):
    """Keeps warnings until they are taken along."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lines: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append((record.levelno, record.getMessage()))

    def take(self) -> list[tuple[int, str]]:
        lines, self._lines = self._lines, []
        return lines


class Hands(Protocol):
    """Where actors come from: Ray, or threads in tests."""

    wanted: int

    def start(self) -> tuple[Any, Any]: ...
    def step(self, actor: Any, jobs: list[tuple[int, Any]]) -> Any: ...
    def wait(self, calls: Sequence[Any], seconds: float) -> list[Any]: ...
    def get(self, call: Any) -> Any: ...
    def end(self, actor: Any) -> None: ...


class RayHands:
    """How a pool starts actors on Ray and hears of them."""

    def __init__(self, cluster: Cluster, make: Callable[[], Worker[Any, Any]], *, device: str, deterministic: bool):
        self._ray = needed("ray", "ray", "--ray")
        gpus = 0.0 if not device.startswith("cuda") else cluster.gpu_share or 1.0
        self.wanted = wanted(cluster, gpus)
        nodes = max(1, sum(bool(node["Alive"]) for node in self._ray.nodes()))
        # Ours, asked here: Ray's workers have one of their own.
        threads = threads_for(-(-self.wanted // nodes), os.environ.get("OMP_NUM_THREADS"))
        self._setting = Setting(deterministic, threads, deadline.limit(), versions())
        self._make = self._put(make)
        self._kind = self._ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=0, max_task_retries=0)(Actor)

    def _put(self, make: Callable[[], Worker[Any, Any]]) -> Any:
        """What all workers begin with, stored once; what a user's file brought goes with it, as it cannot be found."""
        for module in user_modules():
            self._ray.cloudpickle.register_pickle_by_value(module)
        try:
            return self._ray.put(make)
        except (TypeError, AttributeError, ValueError, self._ray.cloudpickle.pickle.PicklingError) as error:
            told = _first_line(error)
            raise UsageError(f"what workers need cannot be sent to them ({told}); leave --ray out") from error

    def start(self) -> tuple[Any, Any]:
        """A new actor, and the call that makes it ready."""
        actor = self._kind.remote()
        return actor, actor.begin.remote(self._make, self._setting)

    def step(self, actor: Any, jobs: list[tuple[int, Any]]) -> Any:
        return actor.step.remote(jobs)

    def wait(self, calls: Sequence[Any], seconds: float) -> list[Any]:
        """Those of the calls that have ended, as soon as one has."""
        ended, going = self._ray.wait(list(calls), num_returns=1, timeout=seconds)
        more = self._ray.wait(going, num_returns=len(going), timeout=0)[0] if ended and going else []
        return [*ended, *more]

    def get(self, call: Any) -> Any:
        """What a call gave. Errors of the work are raised as they were there; Lost where the worker is gone."""
        try:
            return self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, AssayError):
                raise error.cause from None
            if isinstance(error.cause, self._ray.exceptions.RaySystemError):  # before the work began
                raise UsageError(f"a worker cannot load what it was sent: {_first_line(error.cause)}") from error
            raise error.cause from error
        except self._ray.exceptions.RayError as error:
            raise Lost(_first_line(error)) from error

    def end(self, actor: Any) -> None:
        self._ray.kill(actor, no_restart=True)


def _first_line(error: Exception) -> str:
    first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return first.strip().rstrip(".:")


def user_modules() -> list[Any]:
    """The modules that users' files made, and those beside them that they imported."""
    named = {name: module for name, module in sys.modules.items() if name.startswith(USER_MODULE)}
    folders = {Path(str(module.__file__)).parent for module in named.values()}
    beside = [
        module
        for name, module in list(sys.modules.items())
        if name not in named and name != "__main__" and not name.startswith("assay")
        if (place := getattr(module, "__file__", None)) and Path(os.fspath(place)).parent in folders
    ]
    return [*named.values(), *beside]
