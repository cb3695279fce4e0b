"""One worker of a training on Ray: it trains as one of several ranks, and tells the desk."""

import logging
import os
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.cases import Cases
from assay.core.deadline import call_limit
from assay.core.errors import AssayError, UsageError
from assay.core.extras import needed
from assay.core.precision import half_precision
from assay.core.randomness import Stream
from assay.core.registry import Bound
from assay.engines.actors import versions
from assay.engines.cluster import threads_for
from assay.engines.desk import Failure
from assay.engines.session import session
from assay.stages.trainers.ranks import PeerLost, Ranks, together
from assay.stages.trainers.watch import State
from assay.subjects.bench import Splits

log = logging.getLogger("assay")

BEAT = 0.5  # seconds between two signs of life


@dataclass(frozen=True, slots=True)
class Job:
    """The training that all ranks do, and what they must agree on with the process that asked for it."""

    fit: Bound
    module: nn.Module
    data: Splits
    extra: Cases | None
    rng: Stream
    deterministic: bool
    halved: bool  # bfloat16 where the device has it
    call_limit: float | None
    folder: str  # where the names of files are meant
    threads: str | None = field(default_factory=lambda: os.environ.get("OMP_NUM_THREADS"))
    versions: tuple[str, str] = field(default_factory=versions)


class _Over(BaseException):
    """Nobody waits for the result any more; no Exception, which a trainer may catch."""


def work(job: Any, desk: Any) -> None:
    """Train as the rank that Ray Train says; ``job`` is where the job lies, ``desk`` the actor to tell."""
    ray = needed("ray", "ray", "--ray")
    context = needed("ray.train", "ray", "--ray").get_context()
    ranks = Ranks(context.get_world_rank(), context.get_world_size())
    over, state = ray.get(desk.begin.remote(ranks.rank, ray.util.get_current_placement_group()))
    if over:
        return
    watch = _Watch(desk, ranks, None if state is None else unpacked(state))
    try:
        with _beats(watch), _said(desk):
            made = _trained(ray.get(job), ranks, watch, context.get_local_world_size())
            if ranks.rank == 0:
                ray.get(desk.finish.remote(packed(made)))
    except (PeerLost, _Over) as gone:
        # Ray Train ends what is left of the group; where there is more to do it starts another.
        raise RuntimeError(f"left alone: {gone}") from gone
    except Exception as error:  # whatever ended the work here would end it again
        ray.get(desk.fail.remote(_failure(error)))
        if ranks.count > 1:
            raise  # the others may wait for this rank: Ray Train ends them


def _trained(job: Job, ranks: Ranks, watch: "_Watch", local: int) -> nn.Module | dict[str, Tensor]:
    """What the trainer made: its weights, where the net is of the same build as the one it was given, else the net."""
    if job.versions != versions():
        there, here = (f"assay {a} with torch {t}" for a, t in (versions(), job.versions))
        raise UsageError(f"a worker has {there}, the process that asks has {here}: install the same")
    if Path(job.folder).is_dir():
        os.chdir(job.folder)
    if not job.deterministic:
        torch.set_num_threads(threads_for(local, job.threads))
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = needed("ray.train.torch", "ray", "--ray").get_device()
    module = job.module.to(device)
    half = half_precision(device, asked=job.halved)
    with session(deterministic=job.deterministic), call_limit(job.call_limit), half, together(ranks):
        made: nn.Module = job.fit(module, job.data, job.extra, rng=job.rng, watch=watch)
    if [type(part) for part in made.modules()] == [type(part) for part in module.modules()]:
        return {name: tensor.detach().cpu() for name, tensor in made.state_dict().items()}
    return made.cpu()


class _Watch:
    """Looks on at one rank; that of rank 0 tells the desk."""

    def __init__(self, desk: Any, ranks: Ranks, state: State | None) -> None:
        self.desk, self.ranks, self.state = desk, ranks, state
        self.place: tuple[int, float] | None = None
        self.over = False
        self.ray = needed("ray", "ray", "--ray")

    def resume(self) -> State | None:
        return self.state

    def batch(self, epoch: int, done: float) -> None:
        self.place = epoch, done
        if self.over:
            raise _Over

    def epoch(self, state: State, net: nn.Module) -> None:
        if self.ranks.rank == 0:
            self.ray.get(self.desk.epoch.remote(len(state.log), packed(on_cpu(state))))

    def note(self, facts: Mapping[str, Any]) -> None:
        if self.ranks.rank == 0:
            self.ray.get(self.desk.note.remote(facts))


def packed(thing: Any) -> bytes:
    """For the desk, which need not know what it is. Ray's own pickle: a net may be of a class of the user's file."""
    return bytes(needed("ray.cloudpickle", "ray", "--ray").dumps(thing))


def unpacked(content: bytes) -> Any:
    """What a worker or the driver of this very command packed, and nobody else."""
    return needed("ray.cloudpickle", "ray", "--ray").loads(content)


def on_cpu(state: State) -> State:
    """The state for a process that may have no GPU."""
    weights, average, best, memory = (
        {name: tensor.cpu() for name, tensor in part.items()}
        for part in (state.weights, state.average, state.best, state.memory)
    )
    slots = {
        index: {name: value.cpu() if isinstance(value, Tensor) else value for name, value in slot.items()}
        for index, slot in state.optimiser.get("state", {}).items()
    }
    return State(
        state.epoch,
        weights,
        {**state.optimiser, "state": slots} if state.optimiser else {},
        average,
        best,
        list(state.log),
        memory,
    )


@contextmanager
def _beats(watch: _Watch) -> Iterator[None]:
    """Signs of life from a thread of its own: a step, or the judging of an epoch, may take long."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.is_set():
            try:
                told = watch.desk.beat.remote(watch.ranks.rank, watch.place, watch.ranks.seen)
                watch.over = watch.ray.get(told)
            except watch.ray.exceptions.RayError:
                watch.over = True  # the desk is gone, and with it who asked
                return
            stop.wait(BEAT)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


class _Said(logging.Handler):
    """Sends warnings to the desk."""

    def __init__(self, desk: Any) -> None:
        super().__init__(logging.WARNING)
        self.desk = desk

    def emit(self, record: logging.LogRecord) -> None:
        self.desk.say.remote(record.levelno, record.getMessage())


@contextmanager
def _said(desk: Any) -> Iterator[None]:
    handler = _Said(desk)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def _failure(error: Exception) -> Failure:
    """The error as it can travel; one that is no message for users says where it came from."""
    if isinstance(error, AssayError):
        return Failure(type(error).__name__, str(error))
    where = traceback.extract_tb(error.__traceback__)[-1]
    return Failure("", f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})")
