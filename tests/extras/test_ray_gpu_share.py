"""``--gpu-share``: what is asked of Ray is what the flag says. The GPUs are a number that Ray was told."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from torch import nn

from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.engines.cluster import Cluster
from assay.engines.group import _Group
from assay.engines.pool import pool
from assay.engines.rank import Job
from assay.stages.trainers.watch import Unwatched
from assay.subjects.bench import Data, Splits

CORES, GPUS = 6, 1


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ASSAY_TEST_NETWORK", raising=False)
        pickled: Any = ray.cloudpickle
        pickled.register_pickle_by_value(sys.modules[__name__])  # workers do not find it
        paths = os.pathsep.join(path for path in sys.path if path)
        ray.init(
            num_cpus=CORES,
            num_gpus=GPUS,
            include_dashboard=False,
            log_to_driver=False,
            _node_ip_address="127.0.0.2",
            runtime_env={"env_vars": {"PYTHONPATH": paths}},
        )
        yield
        ray.shutdown()


class Told:
    """A worker whose answer is its process and what Ray has given it."""

    room = 1

    def step(self, jobs: list[tuple[int, int]]) -> list[tuple[int, Any]]:
        return [(number, (os.getpid(), ray.get_runtime_context().get_assigned_resources())) for number, _ in jobs]


def worked(cluster: Cluster, jobs: int, device: str = "cuda") -> tuple[int, list[Any]]:
    """How many workers were wanted, and what the jobs gave."""
    with pool(cluster, Told, device=device, deterministic=True) as working:
        return working.wanted, [result for _, result in working.map(range(jobs), lambda: False)]


@pytest.mark.parametrize(("share", "workers"), [(0.25, 4), (0.5, 2), (0.3, 3), (None, 1)])
def test_as_many_workers_share_a_gpu_as_fit_and_each_has_its_part(share: float | None, workers: int) -> None:
    wanted, told = worked(Cluster("local", None, share), 12)
    assert (wanted, len(told)) == (workers, 12)
    assert all(given == {"CPU": 1.0, "GPU": share or 1.0} for _, given in told)
    assert 1 <= len({pid for pid, _ in told}) <= workers
    assert os.getpid() not in {pid for pid, _ in told}


def test_on_cores_no_gpu_is_asked_for() -> None:
    _, ((_, given),) = worked(Cluster("local", 1, 0.25), 1, "cpu")
    assert given == {"CPU": 1.0}


def test_a_share_for_which_there_is_no_room_is_told_and_those_that_fit_work(caplog: pytest.LogCaptureFixture) -> None:
    wanted, told = worked(Cluster("local", 3, 0.5), 6)
    assert (wanted, len(told)) == (3, 6)
    assert len({pid for pid, _ in told}) <= 2
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said == ["the cluster has room for 2 of 3 workers with a core and 0.5 of a GPU each; the others wait for it"]


def job() -> Job:
    x = torch.rand(32, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    data = Data("noise", Cases.of(x, torch.arange(32) % 2), InputSpec((1, 4, 4), (0.0, 1.0), ("a", "b")))
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    fit = bind("trainer", "plain", {"epochs": 1, "batch": 16}, {})
    return Job(fit, net, Splits("noise", train=data, val=data), None, Stream(0), True, False, None, str(Path.cwd()))


class Group(_Group):
    """One that keeps what Ray has set apart for it."""

    kept: Any = None

    def _check(self, told: Any) -> None:
        if told.room is not None:
            self.kept = ray.util.placement_group_table(told.room)["bundles"]
        super()._check(told)


def test_workers_of_a_training_have_their_share() -> None:
    group = Group(Cluster("local", 2, 0.5), job(), Unwatched(), gpu=True)
    made = group.result(lambda _: None)
    assert isinstance(made, dict)
    assert list(group.kept.values()) == [{"CPU": 1.0, "GPU": 0.5}] * 2


def test_a_training_that_could_never_begin_is_refused() -> None:
    with pytest.raises(UsageError, match=r"room for 1 of 2 workers with a core and 0\.6 of a GPU each: take fewer"):
        _Group(Cluster("local", 2, 0.6), job(), Unwatched(), gpu=True)
