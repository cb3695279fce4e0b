"""How many workers are started, and for how long they are waited for."""

from types import SimpleNamespace
from typing import Any

import pytest

from assay.core.errors import UsageError
from assay.engines import cluster
from assay.engines.cluster import Cluster, patience, places, room, wanted


@pytest.mark.parametrize(
    ("have", "share", "count"),
    [
        ({"CPU": 4.0, "GPU": 2.0}, 0.0, 4),
        ({"CPU": 4.0, "GPU": 2.0}, 1.0, 2),
        ({"CPU": 16.0, "GPU": 2.0}, 0.25, 8),
        ({"CPU": 3.0, "GPU": 2.0}, 0.25, 3),
        ({"CPU": 99.0, "GPU": 1.0}, 0.1, 10),
        ({"CPU": 99.0, "GPU": 2.0}, 0.6, 2),  # not three: no worker works on the rests of two GPUs
        ({"CPU": 99.0, "GPU": 1.5}, 0.25, 6),
        ({"CPU": 99.0}, 0.25, 0),
        ({}, 0.0, 0),
    ],
)
def test_a_share_is_of_one_gpu(have: dict[str, float], share: float, count: int) -> None:
    assert places(have, share) == count


@pytest.mark.parametrize("share", [0.0, -0.5, 0.00001, 1.5, float("nan")])
def test_what_is_no_part_of_a_gpu_is_refused(share: float) -> None:
    with pytest.raises(UsageError, match=r"--gpu-share is a part of one GPU, from 0\.0001 to 1"):
        Cluster("local", 2, share)


class FakeRay:
    """A cluster of which some is free, and more after so many looks."""

    def __init__(self, there: dict[str, float], *free: dict[str, float], joined: bool = True) -> None:
        self.there, self.free, self.joined = there, list(free), joined

    def is_initialized(self) -> bool:
        return self.joined

    def cluster_resources(self) -> dict[str, float]:
        return self.there

    def available_resources(self) -> dict[str, float]:
        return self.free.pop(0) if len(self.free) > 1 else self.free[0]


def of(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "needed", lambda *_: ray)
    monkeypatch.setattr(cluster, "SETTLE", 0.05)


def test_a_local_cluster_is_all_ours_whatever_the_workers_before_still_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    of(FakeRay({"CPU": 8}, {"CPU": 1}), monkeypatch)
    assert wanted(Cluster("local"), 0.0) == 8


def test_of_another_cluster_what_is_free_is_taken_once_all_was_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "SETTLE", 60.0)
    monkeypatch.setattr(cluster, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: None))
    monkeypatch.setattr(cluster, "needed", lambda *_: FakeRay({"CPU": 8}, {"CPU": 1}, {"CPU": 5}, {"CPU": 8}))
    assert wanted(Cluster("auto"), 0.0, at_once=True) == 8


def test_of_another_cluster_what_others_use_is_left_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    of(FakeRay({"CPU": 8}, {"CPU": 5}), monkeypatch)
    assert wanted(Cluster("auto"), 0.0, at_once=True) == 5


@pytest.mark.parametrize("address", ["local", "auto"])
def test_fewer_places_than_workers_are_told(
    address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    of(FakeRay({"CPU": 8, "GPU": 1}, {}), monkeypatch)
    assert wanted(Cluster(address, 4, 0.25), 0.25) == 4
    assert caplog.records == []
    assert wanted(Cluster(address, 4, 0.5), 0.5) == 4
    (told,) = (record.getMessage() for record in caplog.records)
    assert told == ("the cluster has room for 2 of 4 workers with a core and 0.5 of a GPU each; the others wait for it")


@pytest.mark.parametrize(
    ("gpus", "workers", "at_once", "words"),
    [
        (1, 4, True, r"room for 2 of 4 workers with a core and 0\.5 of a GPU each: take fewer --workers"),
        (0, 4, False, "room for 0 of 4 workers"),
        (0, None, False, r"room for 0 of 1 worker with a core and 0\.5 of a GPU each"),
    ],
)
def test_what_this_machine_will_never_have_is_refused(
    gpus: int, workers: int | None, at_once: bool, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of(FakeRay({"CPU": 8, "GPU": gpus}, {}), monkeypatch)
    with pytest.raises(UsageError, match=words):
        wanted(Cluster("local", workers, 0.5), 0.5, at_once=at_once)


def test_no_cluster_is_started_to_count_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    of(FakeRay({"CPU": 99}, joined=False), monkeypatch)
    monkeypatch.setattr(cluster, "cpus_here", lambda: 16)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert room(Cluster("local"), 0.25) == 8
    assert room(Cluster("local"), 0.0) == 16


@pytest.mark.parametrize(("asked", "seconds"), [(None, 60.0), ("", 60.0), ("600", 600.0), ("0.5", 0.5)])
def test_how_long_is_waited(asked: str | None, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_RAY_WAIT", raising=False)
    if asked is not None:
        monkeypatch.setenv("ASSAY_RAY_WAIT", asked)
    assert patience(60.0) == seconds


@pytest.mark.parametrize("asked", ["long", "-1", "0", "nan"])
def test_what_is_no_time_is_refused(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_RAY_WAIT", asked)
    with pytest.raises(UsageError, match="ASSAY_RAY_WAIT is a number of seconds above 0"):
        patience(60.0)
