"""Several ranks that train one net: what each learns from, and that together they make the step of the whole batch."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.multiprocessing.spawn import spawn

from assay.stages.trainers.augment import Augmentation
from assay.stages.trainers.loop import Task
from assay.stages.trainers.ranks import PeerLost, Ranks, here, together
from rank_group import ROWS, Net, Normed, disagree, learned, leave, squared, work


@pytest.mark.parametrize("n", range(1, 12))
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_row_of_a_batch_is_dealt_once_and_none_alone(n: int, count: int) -> None:
    parts = [range(n)[Ranks(rank, count).part(n)] for rank in range(count)]
    assert [row for part in parts for row in part] == list(range(n))
    assert all(len(part) != 1 for part in parts) or n == 1
    assert max(map(len, parts)) - min(len(part) for part in parts if part) <= 1


def test_one_alone_trains_as_if_there_were_no_ranks() -> None:
    assert (here().rank, here().count) == (0, 1)
    with together(Ranks(1, 3)) as ranks:
        assert here() is ranks
    assert here().count == 1


def test_a_part_of_a_batch_is_augmented_as_in_the_whole_one() -> None:
    moved = Augmentation.parse("flip, shift=0.2, rotate=10")
    x = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    whole = moved.apply(x, torch.Generator().manual_seed(3))
    part = moved.apply(x[2:5], torch.Generator().manual_seed(3), (2, 6))
    assert not torch.equal(whole, x)
    assert torch.equal(part, whole[2:5])


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each process of a group of three kept: of the last batch one of them has no rows, of the others all have."""
    folder, count = tmp_path_factory.mktemp("group"), 3
    spawn(work, (count, str(folder)), nprocs=count)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(count)]


def test_ranks_together_make_the_steps_of_one_process(ranks: list[dict[str, Any]]) -> None:
    for kind, serial in (("plain", learned(Net())), ("task", learned(Net(), task=Task(squared)))):
        for own in ranks:
            for mine, alone in zip(own[kind], serial, strict=True):
                for name, value in alone["weights"].items():
                    assert torch.allclose(mine["weights"][name], value, atol=1e-6), (kind, name)
                assert mine["numbers"] == pytest.approx(alone["numbers"], abs=1e-6)
        assert torch.equal(ranks[-1][kind][-1]["weights"]["idle.weight"], Net().idle.weight)
    assert [own["seen"][0]["cases"] for own in ranks] == [3 * 2 * ROWS] * len(ranks)


def test_all_ranks_end_an_epoch_with_the_same_net_and_the_same_statistics(ranks: list[dict[str, Any]]) -> None:
    first, *others = (own["normed"] for own in ranks)
    for epoch, one in enumerate(first):
        for other in others:
            assert other[epoch]["numbers"] == one["numbers"]
            for name, value in one["weights"].items():
                assert torch.equal(other[epoch]["weights"][name], value), name
        assert torch.equal(one["weights"]["limit"], Normed().limit)
    assert not bool((first[-1]["weights"]["norm.running_mean"] == 0).all())


def test_who_is_left_alone_hears_of_it(tmp_path: Path) -> None:
    """An error of its own: what ranks do together can be repeated, which no other error says."""
    spawn(leave, (str(tmp_path),), nprocs=2)
    assert (tmp_path / "heard").exists()


def test_nets_that_differ_between_ranks_are_refused_by_all(tmp_path: Path) -> None:
    """Gloo ends the process that gets too much, so that it would look like one that died, again and again."""
    spawn(disagree, (str(tmp_path),), nprocs=2)
    for what in ("weights", "buffers"):
        for rank in range(2):
            told = (tmp_path / f"{what}-{rank}.txt").read_text()
            assert told.startswith("the net has other weights or buffers on one worker than on another")


def failing(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ranks do together, ended by that error."""

    def fails(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(distributed, "broadcast_object_list", fails)
    Ranks(1, 2).told(lambda: 1)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:1: Connection reset by peer"),
        RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1"),
        RuntimeError("[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 5ms for recv operation to complete"),
        distributed.DistBackendError("NCCL error: remote process exited or there was a network error"),
        distributed.DistBackendError("NCCL communicator was aborted on rank 1"),
        distributed.DistNetworkError("The client socket has timed out"),
        distributed.DistStoreError("Socket Timeout"),
    ],
)
def test_a_rank_that_is_gone_is_a_lost_peer(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PeerLost):
        failing(error, monkeypatch)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[enforce fail at gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 1000 vs 12"),
        RuntimeError("Expected all tensors to be on the same device"),
        RuntimeError("CUDA error: device-side assert triggered"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        distributed.DistBackendError("NCCL error: invalid usage"),
        AttributeError("can't pickle local object"),
    ],
)
def test_what_would_come_again_stays_what_it_is(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(type(error)) as told:
        failing(error, monkeypatch)
    assert told.value is error
