"""Reliability test 12: workers, nodes and the driver die, stores fill up; the result is that of one process."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray.cluster_utils import Cluster as Machines

import assay
from assay.cli import run as command
from assay.engines.cluster import Cluster, connected
from assay.engines.pool import NoWorkers, pool
from ray_workers import is_gone, kill_one, workers_of
from small import CAMPAIGN, MODEL, committed, fuzz, prepare

SLOW_NET = """
import time
from torch import nn

class Slow(nn.Sequential):
    def forward(self, x):
        time.sleep(0.02)
        return super().forward(x)

def net():
    return Slow(nn.Flatten(), nn.Linear(64, 10))
"""
UNITS = 8
PATIENCE = 300  # seconds; no promise, but the end of a test that hangs
HOW: dict[str, Any] = {"unit": 4, "lanes": 4, "deterministic": True, "changes": {"mutate": "noise(eps=0.6)"}}


@pytest.fixture(autouse=True)
def _unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ray that starts asks the machine which cloud it is in, even where it is told to report nothing."""
    monkeypatch.delenv("ASSAY_TEST_NETWORK")


@pytest.fixture
def serial(tmp_path: Path) -> dict[str, bytes]:
    """A campaign of a slow net, and what it gives in one process."""
    prepare(tmp_path, seeds=4 * UNITS)
    (tmp_path / "tiny.py").write_text(SLOW_NET)
    assay.fuzz("noise", MODEL, "seeds.npz", run="here", **HOW)
    return held("here")


def held(name: str) -> dict[str, bytes]:
    """All that a run holds but the command that made it."""
    files = committed(Path("runs") / name)
    del files["campaign.toml"]
    return files


def stats(name: str) -> Any:
    return json.loads((Path("runs") / name / "stats.json").read_text())


def once(do: Callable[[], object]) -> Callable[[Mapping[str, Any]], None]:
    """Look on, and do something when the first unit is committed."""
    left = [do]

    def look(numbers: Mapping[str, Any]) -> None:
        if numbers.get("seeds") and left:
            left.pop()()

    return look


def test_a_worker_killed_on_the_way_changes_nothing_and_status_tells_of_it(
    serial: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    with connected(Cluster("local", 2)):
        kill = once(lambda: kill_one(os.getpid()))
        found = assay.fuzz("noise", MODEL, "seeds.npz", run="there", ray="local", workers=2, progress=kill, **HOW)
    assert found.complete
    assert held("there") == serial
    assert stats("there")["workers"]["lost"] == 1
    capsys.readouterr()
    assert command(["status", "there"]) == 0
    assert "1 lost" in capsys.readouterr().out


@pytest.mark.slow
def test_a_worker_killed_again_and_again_changes_nothing(tmp_path: Path) -> None:
    """One whenever there are two, and not twice in three seconds: where none is left, nobody works."""
    prepare(tmp_path, seeds=160)
    (tmp_path / "tiny.py").write_text(SLOW_NET)
    killed: list[float] = [time.monotonic()]

    def kill(numbers: Mapping[str, Any]) -> None:
        both = numbers.get("workers", {}).get("workers") == 2
        if both and time.monotonic() - killed[-1] >= 3 and kill_one(os.getpid()):
            killed.append(time.monotonic())

    with connected(Cluster("local", 2)):
        assay.fuzz("noise", MODEL, "seeds.npz", run="there", ray="local", workers=2, progress=kill, **HOW)
    assert len(killed) > 3
    assay.fuzz("noise", MODEL, "seeds.npz", run="here", **HOW)
    assert held("there") == held("here")
    assert stats("there")["workers"]["lost"] >= 3


@pytest.mark.slow
def test_units_under_which_every_process_dies_are_skipped(tmp_path: Path) -> None:
    prepare(tmp_path, seeds=12)
    with np.load(tmp_path / "seeds.npz") as before:
        x, y = before["x"], before["y"]
    x[9:] = 1.0  # bright ones, which end the process that looks at them, unless it is this one
    np.savez(tmp_path / "seeds.npz", x=x, y=y)
    fatal = (
        f"__import__('os').getpid() != {os.getpid()} and x.mean((1, 2, 3)).max() > 0.65 and __import__('os').abort()"
    )
    (tmp_path / "tiny.py").write_text(SLOW_NET.replace("time.sleep(0.02)", fatal))
    how = HOW | {"unit": 3, "lanes": 3, "changes": HOW["changes"] | {"seeds": "all"}}
    with connected(Cluster("local", 1)):
        found = assay.fuzz("noise", MODEL, "seeds.npz", run="there", ray="local", workers=1, **how)
    assert (found.seeds, found.skipped) == (9, 3)
    assert "died 5 times" in str(found.skipped_because)


@contextmanager
def machines(*cpus: int) -> Iterator[tuple[Any, list[Any]]]:
    """A cluster of several nodes on this machine, the first its head, and this process a driver of it."""
    cluster: Any = Machines(initialize_head=True, head_node_args={"num_cpus": cpus[0], "include_dashboard": False})
    try:
        others = [cluster.add_node(num_cpus=count) for count in cpus[1:]]
        paths = os.pathsep.join(path for path in sys.path if path)
        ray.init(address=cluster.address, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": paths}})
        yield cluster, others
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_a_node_that_is_lost_changes_nothing(serial: dict[str, bytes]) -> None:
    with machines(1, 1) as (cluster, (node,)):
        lose = once(lambda: cluster.remove_node(node, allow_graceful=False))
        found = assay.fuzz("noise", MODEL, "seeds.npz", run="there", ray="auto", workers=2, progress=lose, **HOW)
    assert found.complete
    assert held("there") == serial
    assert stats("there")["workers"]["lost"] == 1


def test_without_workers_it_ends_with_a_message_and_the_same_command_goes_on(
    serial: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with machines(0, 2) as (cluster, (node,)):

        def lose() -> None:
            monkeypatch.setenv("ASSAY_RAY_WAIT", "2")
            cluster.remove_node(node, allow_graceful=False)

        with pytest.raises(NoWorkers, match="the same command goes on") as ended:
            assay.fuzz("noise", MODEL, "seeds.npz", run="there", ray="auto", workers=2, progress=once(lose), **HOW)
    assert ended.value.exit_code == 3
    assert sum("waiting for one" in record.getMessage() for record in caplog.records) == 1
    done = [line for line in Path("runs/there/journal.jsonl").read_text().splitlines() if '"counts"' in line]
    assert 1 <= len(done) < UNITS
    assay.fuzz("noise", MODEL, "seeds.npz", run="there", **HOW)
    assert held("there") == serial


@contextmanager
def started(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A command of its own session, ended with all that it started."""
    child = subprocess.Popen(
        [sys.executable, "-m", "assay", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def begun(child: "subprocess.Popen[str]", name: str) -> None:
    """Wait until the run has committed a unit."""
    journal = Path("runs") / name / "journal.jsonl"
    while not (journal.exists() and b'"counts"' in journal.read_bytes()):
        assert child.poll() is None, child.communicate()
        time.sleep(0.05)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "Ctrl-C"])
def test_a_driver_that_is_stopped_leaves_a_run_that_goes_on(how: signal.Signals, tmp_path: Path) -> None:
    prepare(tmp_path, CAMPAIGN, seeds=60)
    (tmp_path / "tiny.py").write_text(SLOW_NET)
    ended = ["--cases", "900", "--deterministic"]
    assert command(fuzz("here", *ended)) == 0
    with started(fuzz("there", *ended, "--ray", "--workers", "2")) as child:
        begun(child, "there")
        workers = workers_of(child.pid)
        assert workers
        # Ctrl-C reaches every process of a terminal; those of Ray leave it to the driver.
        (os.killpg if how is signal.SIGINT else os.kill)(child.pid, how)
        _, said = child.communicate(timeout=PATIENCE)
        assert child.returncode == (2 if how is signal.SIGINT else -signal.SIGKILL), said
    assert "Traceback" not in said
    deadline = time.monotonic() + PATIENCE
    while not all(is_gone(pid) for pid in workers):  # they end with their driver
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert held("there") != held("here")
    assert command(fuzz("there", *ended)) == 0
    assert held("there") == held("here")


class Wide:
    """A worker whose results are eight megabytes each."""

    room = 4

    def __init__(self) -> None:
        self.held: list[tuple[int, int]] = []

    def step(self, jobs: list[tuple[int, int]]) -> list[tuple[int, Any]]:
        self.held += jobs
        number, job = self.held.pop(0)
        return [(number, np.full(1 << 20, job, dtype=np.int64))]


def test_results_that_do_not_fit_in_the_object_store_come_all_the_same() -> None:
    pickled: Any = ray.cloudpickle
    pickled.register_pickle_by_value(sys.modules[__name__])  # workers do not find it
    paths = os.pathsep.join(path for path in sys.path if path)
    ray.init(
        num_cpus=2,
        object_store_memory=80 << 20,
        include_dashboard=False,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
    )
    try:
        with pool(Cluster("local", 2), Wide, device="cpu", deterministic=True) as workers:
            results = list(workers.map(range(24), lambda: False))  # 192 megabytes, all of them held
    finally:
        ray.shutdown()
    assert [job for job, _ in results] == list(range(24))
    assert all(bool(np.all(result == job)) for job, result in results)
