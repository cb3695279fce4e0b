"""Ray: where the workers are. What they do is in ``pool.py``; nothing here is part of what makes a run this run."""

import importlib.util
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from assay.core.errors import UsageError
from assay.core.extras import needed

log = logging.getLogger("assay")

LOCAL = "local"  # a cluster on this machine, for as long as the command lasts
WAIT = "ASSAY_RAY_WAIT"  # the variable that says for how many seconds
LEAST_SHARE = 0.0001  # Ray counts no finer
SETTLE = 3.0  # seconds until what workers gave back counts as free


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where work is done: ``local``, ``auto`` (the cluster this machine belongs to), ``host:port`` or ``ray://…``.

    ``workers`` is how many; None takes what the cluster has free. ``gpu_share`` is the part of a GPU that each takes;
    None is a whole one where the work is on GPUs.
    """

    address: str = LOCAL
    workers: int | None = None
    gpu_share: float | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"--workers must be at least 1, got {self.workers}")
        if self.gpu_share is not None and not LEAST_SHARE <= self.gpu_share <= 1:
            raise UsageError(f"--gpu-share is a part of one GPU, from {LEAST_SHARE} to 1; got {self.gpu_share:g}")


def cluster_of(
    ray: "str | Cluster | None", workers: int | None = None, gpu_share: float | None = None
) -> Cluster | None:
    """What the user asked for; None where all is to be done in this process, as where Ray is not installed."""
    if ray is None or ray == "":
        if workers is not None or gpu_share is not None:
            raise UsageError("--workers and --gpu-share are of --ray, which was not given")
        return None
    cluster = ray if isinstance(ray, Cluster) else Cluster(ray, workers, gpu_share)
    if importlib.util.find_spec("ray") is None:
        log.warning("--ray needs ray: pip install 'assay[ray]'; all work is done in this process")
        return None
    return cluster


def cpus_here() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_for(local: int, asked: str | None) -> int:
    """Threads of each of ``local`` workers of this machine, no more than ``asked`` (OMP_NUM_THREADS of who asks).

    >>> threads_for(10**6, None), threads_for(1, "1")
    (1, 1)
    """
    threads = max(1, cpus_here() // max(1, local))
    return min(threads, max(1, int(asked))) if asked is not None and asked.isdigit() else threads


def patience(usual: float) -> float:
    """Seconds to go without any worker before the work is given up: the variable's, else those that are usual."""
    asked = os.environ.get(WAIT, "")
    try:
        seconds = float(asked or usual)
    except ValueError:
        seconds = -1.0
    if not seconds > 0:
        raise UsageError(f"{WAIT} is a number of seconds above 0, got {asked!r}")
    return seconds


def places(have: Mapping[str, float], share: float) -> int:
    """For how many workers there is room, each with a core and, unless it is 0, the ``share`` of one and the same GPU.

    >>> places({"CPU": 16, "GPU": 2}, 0.25), places({"CPU": 16, "GPU": 2}, 0.6), places({"CPU": 16}, 0)
    (8, 2, 16)
    """
    cpus = int(have.get("CPU", 0))
    if not share:
        return cpus
    whole, rest = divmod(have.get("GPU", 0), 1)
    little = 1e-9  # a tenth goes ten times into one, also in binary numbers
    return min(cpus, int(whole) * int(1 / share + little) + int(rest / share + little))


def room(cluster: Cluster, share: float) -> int:
    """For how many workers a cluster has room, whoever uses it now; without starting one on this machine for it."""
    ray = needed("ray", "ray", "--ray")
    if cluster.address == LOCAL and not ray.is_initialized():
        import torch

        return places({"CPU": cpus_here(), "GPU": torch.cuda.device_count()}, share)
    with connected(cluster):
        return places(ray.cluster_resources(), share)


def wanted(cluster: Cluster, share: float, *, at_once: bool = False) -> int:
    """How many workers to start: those asked for, else as many as there is room for; what cannot be had is told.

    ``at_once`` says that they begin when all are there, and so never where there is no room for all.
    """
    there = room(cluster, share)
    asked = cluster.workers or 1
    if asked > there:
        told = f"{asked} worker{'s' * (asked > 1)} with a core{f' and {share:g} of a GPU' if share else ''} each"
        said = f"the cluster has room for {there} of {told}"
        if share and cluster.address == LOCAL and (at_once or not there):  # no GPU will be added to this machine
            raise UsageError(f"{said}: take fewer --workers, a smaller --gpu-share, or --device cpu")
        log.warning("%s; the others wait for it", said)
    if cluster.workers is not None:
        return cluster.workers
    return max(1, there if cluster.address == LOCAL else _free(share, there))


def _free(share: float, there: int) -> int:
    """For how many there is room beside what others do, and after what we did has been given back."""
    ray, until = needed("ray", "ray", "--ray"), time.monotonic() + SETTLE
    while (free := places(ray.available_resources(), share)) < there and time.monotonic() < until:
        time.sleep(SETTLE / 10)
    return free


@contextmanager
def connected(cluster: Cluster) -> Iterator[None]:
    """Ray, started or joined, and left afterwards; one that the caller's process has joined already is taken as is."""
    if cluster.address == LOCAL:  # read when it is imported: on Linux too it then listens to this machine alone
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    ray = needed("ray", "ray", "--ray")
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would ask the network where it is, and tell of us
    local = cluster.address == LOCAL
    shape: dict[str, Any] = {}
    if local:  # nobody else is to reach it
        shape = {"num_cpus": max(cpus_here(), cluster.workers or 1), "include_dashboard": False}
        if sys.platform == "linux":  # where all of 127 is this machine; 127.0.0.1 itself Ray takes for its address
            shape["_node_ip_address"] = "127.0.0.2"
    with _quiet(), _own_signals():
        try:
            ray.init(
                address=cluster.address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}},
                **shape,
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UsageError(f"no Ray cluster at {cluster.address!r}: {str(error).splitlines()[0]}") from error
        try:
            yield
        finally:
            ray.shutdown()


@contextmanager
def _quiet() -> Iterator[None]:
    """Their own lines, of a worker that died, go to our log: stdout is for results, and who works tells of deaths."""
    worker = needed("ray._private.worker", "ray", "--ray")
    shows = getattr(worker, "print_to_stdstream", None)
    if shows is None:  # of another version
        yield
        return

    def note(data: Any, *_: Any, **__: Any) -> None:
        log.debug("ray: %s", "; ".join(map(str, data.get("lines", ()))))

    worker.print_to_stdstream = note
    try:
        yield
    finally:
        worker.print_to_stdstream = shows


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes SIGTERM when it starts and keeps it when it ends: it is given back."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if main and before is not None:
            signal.signal(signal.SIGTERM, before)
