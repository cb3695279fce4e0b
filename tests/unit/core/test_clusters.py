"""Which changes are alike: where they raise and lower, not how much."""

import pytest
import torch

from assay.core.clusters import ALIKE, MOST, clusters, directions


def spots(rows: int, columns: int, sign: float, n: int = 6) -> torch.Tensor:
    """Changes of one corner of 28×28 pixels, of several sizes."""
    made = torch.zeros(n, 1, 28, 28)
    made[:, :, rows : rows + 7, columns : columns + 7] = sign
    return made * torch.logspace(-3, 0, n).view(-1, 1, 1, 1)


def test_a_change_and_its_scaled_versions_are_one_kind() -> None:
    change = torch.rand(1, 3, 9, 13, generator=torch.Generator().manual_seed(0)) - 0.4
    scaled = change * torch.tensor([1e-4, 0.3, 1.0, 20.0]).view(-1, 1, 1, 1)
    assert clusters(torch.zeros(4, dtype=torch.int64), directions(scaled)).tolist() == [0] * 4


def test_other_places_signs_and_classes_are_other_kinds() -> None:
    change = torch.cat([spots(0, 0, 1.0), spots(0, 0, -1.0), spots(14, 7, 1.0)])
    groups = torch.zeros(18, dtype=torch.int64)
    assert clusters(groups, directions(change)).tolist() == [0] * 6 + [1] * 6 + [2] * 6
    groups[3] = 5
    assert clusters(groups, directions(change)).tolist() == [0, 0, 0, 1, 0, 0, *[2] * 6, *[3] * 6]


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 5, 3), (7,), (300,), (4, 50)])
def test_more_failures_change_no_kind_and_noise_has_few(shape: tuple[int, ...]) -> None:
    rng = torch.Generator().manual_seed(0)
    change = torch.randn(4000, *shape, generator=rng)
    groups = torch.randint(0, 3, (4000,), generator=rng)
    every = clusters(groups, directions(change))
    for n in (1, 10, 777):
        assert torch.equal(clusters(groups[:n], directions(change[:n])), every[:n])
    assert int(every.max()) + 1 <= 3 * MOST
    if shape == (1, 28, 28):
        assert int(every.max()) + 1 == 3, "noise all over an image is one kind for each pair of classes"


def test_each_one_is_like_the_first_of_its_kind_while_there_is_room() -> None:
    rng = torch.Generator().manual_seed(0)
    direction = directions(torch.randn(500, 1, 8, 8, generator=rng) * (torch.rand(500, 1, 8, 8, generator=rng) < 0.1))
    kinds = clusters(torch.zeros(500, dtype=torch.int64), direction)
    assert int(kinds.max()) + 1 == MOST, "sparse changes fill all there are"
    before = int((kinds == MOST - 1).nonzero()[0])  # the last kind begins here
    firsts = torch.stack([(kinds == kind).nonzero()[0, 0] for kind in range(MOST)])
    likeness = (direction[:before] * direction[firsts[kinds[:before]]]).sum(1)
    assert bool((likeness >= ALIKE - 1e-9).all())


def test_cases_without_a_change_are_a_kind_of_their_own() -> None:
    change = torch.zeros(3, 1, 8, 8)
    change[1, 0, 0, 0] = 1.0
    assert clusters(torch.zeros(3, dtype=torch.int64), directions(change)).tolist() == [0, 1, 0]
    assert clusters(torch.zeros(0, dtype=torch.int64), directions(change[:0])).tolist() == []
