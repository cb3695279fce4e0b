"""Several ranks that train one net: what each learns from, and that together they make the step of the whole batch."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.multiprocessing.spawn import spawn

from assay.stages.trainers.augment import Augmentation
from assay.stages.trainers.loop import Task
from assay.stages.trainers.ranks import Ranks, here, together
from rank_group import ROWS, Net, Normed, learned, leave, squared, work


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


@pytest.fixture(scope="module", params=[2, 3])
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each process of a group kept of its trainings."""
    folder, count = tmp_path_factory.mktemp("group"), request.param
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
