"""Training by a group of workers on Ray: Ray Train starts them, joins them, and starts them again where one dies.

The driver waits at the desk and does with each epoch what one process would: it keeps the state and shows the numbers.
Workers write nothing. A group that lost a worker goes on from the last epoch that lies on the desk.
"""

import copy
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from assay.core import deadline, errors
from assay.core.cases import Cases
from assay.core.errors import AssayError, UsageError
from assay.core.extras import needed
from assay.core.precision import halved
from assay.core.randomness import Stream
from assay.core.registry import Bound
from assay.engines.actors import user_modules
from assay.engines.cluster import WAIT, Cluster, connected, patience, wanted
from assay.engines.desk import Failure, Told
from assay.engines.office import Office
from assay.engines.pool import WAIT_SECONDS, NoWorkers
from assay.engines.rank import Job, on_cpu, packed, unpacked
from assay.stages.trainers.watch import State, Watch
from assay.subjects.bench import Splits
from assay.subjects.sources.folded import normalised_by_batch

log = logging.getLogger("assay")

LOOK = 0.5  # seconds that the driver waits for something to lie on the desk
PARTING = 30.0  # seconds that Ray Train has to end what is done

Gauges = Callable[[Mapping[str, Any]], None]  # hears how many workers there are, and how fast they learn


def trained(
    fit: Bound,
    module: nn.Module,
    data: Splits,
    extra: Cases | None,
    *,
    rng: Stream,
    watch: Watch,
    cluster: Cluster | None,
    deterministic: bool = False,
    gauges: Gauges | None = None,
) -> nn.Module:
    """What the trainer makes of the module: here, or on the workers of a cluster, where there is one."""
    if cluster is None:
        made: nn.Module = fit(module, data, extra, rng=rng, watch=watch)
        return made
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    net, half = copy.deepcopy(module).cpu(), halved(device)
    job = Job(fit, net, data, extra, rng, deterministic, half, deadline.limit(), str(Path.cwd()))
    with connected(cluster):
        group = _Group(cluster, job, watch, gpu=device.type == "cuda")
        told = group.result(gauges or (lambda _: None))
    if isinstance(told, nn.Module):
        return told.to(device)
    result = copy.deepcopy(module)
    result.load_state_dict(told)
    return result


class _Group:
    """The workers of one training, seen from the driver."""

    def __init__(self, cluster: Cluster, job: Job, watch: Watch, *, gpu: bool) -> None:
        self.ray, self.watch, self.module = needed("ray", "ray", "--ray"), watch, job.module
        share = (cluster.gpu_share or 1.0) if gpu else 0.0
        self.count = wanted(cluster, share, at_once=True)
        if self.count > 1 and normalised_by_batch(job.module):
            log.info(
                "batch normalisation takes its statistics from each worker's part of a batch, so the net is not quite "
                "the one that a single process gives"
            )
        content, state = self._put(job), watch.resume()
        self.place = (0 if state is None else len(state.log), 0.0)
        self.desk = self._desk(state)
        self.work = self.desk.train.remote([content], self.count, share)  # in a list, Ray hands on where it lies
        self.wait = patience(2 * WAIT_SECONDS)  # a group takes longer than one worker
        self.lost, self.heard, self.warned = 0, time.monotonic(), False
        self.room: Any = None

    def result(self, gauges: Gauges) -> nn.Module | dict[str, torch.Tensor]:
        """Wait for the workers, and do with each epoch what is done with it; the weights, or the net, they made."""
        rate = _Rate()
        try:
            while True:
                told = self._look()
                state = {"workers": told.alive, "wanted": self.count, "lost": told.lost}
                self.room = told.room
                gauges({"workers": state, "images": rate(told.seen)})
                for kind, content in told.messages:
                    if kind == "done":
                        ended, _ = self.ray.wait([self.work], timeout=PARTING)
                        self.room = None if ended else self.room
                        return unpacked(content)  # type: ignore[no-any-return]  # a worker's word
                    self._hear(kind, content)
                self.place = told.place or self.place
                if not told.messages:  # also before the workers have begun: it is how Ctrl-C is heard
                    self.watch.batch(*self.place)
                self._check(told)
        finally:
            self.ray.kill(self.desk)  # and with it goes what it started: Ray Train, and the workers
            if self.room is not None:  # theirs until the driver ends, unless it is given back
                self.ray.util.remove_placement_group(self.room)

    def _look(self) -> Told:
        try:
            told: Told = self.ray.get(self.desk.take.remote(LOOK))
        except self.ray.exceptions.RayError as error:
            raise NoWorkers(f"Ray is gone ({_line(error)}); the same command goes on from the last epoch") from error
        return told

    def _hear(self, kind: str, content: Any) -> None:
        if kind == "epoch":
            state: State = unpacked(content)
            self.module.load_state_dict(state.weights)
            self.watch.epoch(state, self.module)
        elif kind == "note":
            self.watch.note(content)
        elif kind == "say":
            log.log(content[0], "%s", content[1])
        else:
            self._fail(content)

    def _fail(self, failure: Failure) -> None:
        kind = getattr(errors, failure.kind, None)
        if kind is not None:
            raise kind(failure.text)
        raise AssayError(f"a worker failed: {failure.text}; the same command goes on from the last epoch")

    def _check(self, told: Told) -> None:
        """Say that a worker is lost; give up where none is left, and none comes."""
        if told.lost > self.lost:
            self.lost = told.lost
            log.warning("a worker is lost; all workers start again from the last epoch that was done")
        now = time.monotonic()
        if told.alive:
            self.heard, self.warned = now, False
        elif now - self.heard >= self.wait:
            raise NoWorkers(
                f"no worker for {self.wait:g} s, {self.count} were asked for; what was done is kept, the same command "
                f"goes on from the last epoch; {WAIT}=SECONDS waits longer"
            )
        elif now - self.heard >= self.wait / 4 and not self.warned:
            self.warned = True
            log.warning("no worker is there; waiting for %d for up to %g s", self.count, self.wait)

    def _desk(self, state: State | None) -> Any:
        """An actor beside the driver: where that machine is lost, so is the driver."""
        here = self.ray.get_runtime_context().get_node_id()
        near = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=False)
        kind = self.ray.remote(num_cpus=0, scheduling_strategy=near, max_restarts=0)(Office)
        return kind.remote(0, None) if state is None else kind.remote(len(state.log), packed(on_cpu(state)))

    def _put(self, job: Job) -> Any:
        """The job, stored once; what a user's file brought goes with it, as workers cannot find it."""
        for module in user_modules():
            self.ray.cloudpickle.register_pickle_by_value(module)
        try:
            return self.ray.put(job)
        except (TypeError, AttributeError, ValueError, self.ray.cloudpickle.pickle.PicklingError) as error:
            raise UsageError(f"what workers need cannot be sent to them ({_line(error)}); leave --ray out") from error


class Gauged:
    """Progress that tells of the workers beside the training."""

    def __init__(self, progress: Gauges) -> None:
        self.progress = progress
        self.numbers: dict[str, Any] = {}

    def __call__(self, told: Mapping[str, Any]) -> None:
        self.progress({**told, **self.numbers})

    def gauges(self, numbers: Mapping[str, Any]) -> None:
        self.numbers = {name: value for name, value in numbers.items() if value is not None}


class _Rate:
    """Images a second, from how many have been seen; None before two looks have seen any."""

    def __init__(self) -> None:
        self.first: tuple[float, int] | None = None

    def __call__(self, seen: int) -> float | None:
        now = time.monotonic()
        if self.first is None:
            self.first = (now, seen) if seen else None
            return None
        since, before = self.first
        return (seen - before) / (now - since) if seen > before else None


def _line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
