"""Passes that change how much, not where: on the line to the seed, and onto levels of 8 bits."""

import pytest
import torch
from torch import Tensor

from assay.core.amounts import as_image, between, eight_bit, is_on_levels, line
from assay.core.errors import UsageError
from assay.core.questions import Ask, Task
from assay.core.shrink import passes_of, shrunk

SEEDS, ONES = torch.zeros(3, 2), torch.ones(3, 2)


def sum_above(bars: Tensor) -> Ask:
    """Fails where the entries add up to at least the bar of the row."""
    return lambda rows, x: (x.flatten(1).sum(1) >= bars[rows]).float()


def test_the_least_share_of_the_change_that_fails_is_found() -> None:
    bars = torch.tensor([0.7, 1.999, 2.0])
    made = line(Task(ONES, SEEDS, ONES, sum_above(bars)))
    assert made.failing.tolist() == [True] * 3
    assert made.asked.tolist() == [12] * 3
    least = made.x.sum(1)
    assert bool((least >= bars).all())
    assert bool((least - bars < 2 / 1024 + 1e-6).all())
    assert made.x[2].tolist() == [1.0, 1.0], "nothing smaller fails: it is left as it is, to the bit"


def test_what_comes_back_fails_though_nothing_is_monotone() -> None:
    """Fails with much, not with half of it, and again with a little."""
    fails: Ask = lambda rows, x: ((x[:, 0] > 0.8) | ((x[:, 0] > 0.2) & (x[:, 0] < 0.3))).float()  # noqa: E731
    made = line(Task(ONES, SEEDS, ONES, fails))
    assert bool(fails(torch.arange(3), made.x).all())


def test_a_case_that_does_not_fail_and_a_seed_that_does_are_told() -> None:
    made = line(Task(ONES, SEEDS, ONES, sum_above(torch.tensor([3.0, 0.0, 1.0]))))
    assert made.failing.tolist() == [False, True, True]
    assert torch.equal(made.x[0], ONES[0])
    assert torch.equal(made.x[1], SEEDS[1])
    assert made.asked.tolist() == [1, 2, 12]


def test_a_budget_ends_the_bisection_with_what_fails() -> None:
    bars = torch.tensor([0.5, 0.5, 0.5])
    budget = torch.tensor([0, 1, 4])
    made = line(Task(ONES, SEEDS, ONES, sum_above(bars), budget))
    assert made.asked.tolist() == [0, 1, 4]
    assert made.x[:, 0].tolist() == [1.0, 1.0, 0.25]


@pytest.mark.parametrize("steps", [0, 25, 1.5, True])
def test_steps_that_cannot_be(steps: object) -> None:
    with pytest.raises(UsageError, match="from 1 to 24"):
        line(Task(ONES, SEEDS, ONES, sum_above(torch.ones(3))), steps=steps)  # type: ignore[arg-type]  # on purpose


def test_between_is_never_outside() -> None:
    rng = torch.Generator().manual_seed(0)
    start, end = torch.rand(2, 1000, 8, generator=rng)
    made = between(start, end, torch.rand(1000, generator=rng) ** 8)
    assert bool(((made >= torch.minimum(start, end)) & (made <= torch.maximum(start, end))).all())
    assert torch.equal(between(start, start, torch.rand(1000, generator=rng)), start)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.0, 3.0)])
def test_what_differs_lies_on_levels_no_further_from_the_seed_than_it_came(bounds: tuple[float, float]) -> None:
    rng = torch.Generator().manual_seed(1)
    low, high = bounds
    seeds, came = (low + (high - low) * torch.rand(50, 3, 4, 4, generator=rng) for _ in range(2))
    came[:, :, 0] = seeds[:, :, 0]
    x = between(seeds, came, torch.full((50,), 0.5))
    made = eight_bit(Task(x, seeds, came, lambda rows, x: torch.ones(len(rows)), bounds=bounds))
    assert bool(is_on_levels(made.x, seeds, bounds).all())
    assert not bool(is_on_levels(x, seeds, bounds).any())
    assert torch.equal(made.x[:, :, 0], seeds[:, :, 0])
    assert bool(((made.x - seeds).abs() <= (came - seeds).abs()).all())
    assert bool(((made.x - x).abs() <= (high - low) / 255 + 1e-6).all())
    assert made.asked.tolist() == [2 + 1] * 50, "itself, the nearest levels, and the image with its seed rounded"


def test_levels_away_from_the_seed_and_then_the_change_grown_back_are_tried() -> None:
    """Row 0 fails at the nearest level, row 1 at the next one, row 2 only with more of the change, row 3 at none."""
    x = torch.tensor([[100.2], [100.2], [100.2], [100.2]]) / 255
    came = torch.tensor([[200.0], [200.0], [200.0], [100.5]]) / 255
    bars = torch.tensor([99.5, 100.1, 150.5, 100.1]) / 255
    once = torch.zeros(4, dtype=torch.bool)

    def fails(rows: Tensor, x: Tensor) -> Tensor:
        first = ~once[rows]  # the case itself fails
        once[rows] = True
        return (first | (x[:, 0] >= bars[rows])).float()

    made = eight_bit(Task(x, torch.zeros_like(x), came, fails))
    assert torch.equal(made.x[3], x[3]), "there is no level up to where it came from, and 100 does not fail"
    assert (made.x[:3, 0] * 255).tolist() == [100.0, 101.0, 151.0]
    assert is_on_levels(made.x, torch.zeros_like(x), (0.0, 1.0)).tolist() == [True, True, True, False]


def test_a_case_must_fail_as_its_picture_is_read() -> None:
    """The seed of the other entry is between levels: rounded down, the sum is too small."""
    seeds = torch.tensor([[0.4 / 255, 0.0]])
    x = torch.tensor([[0.4 / 255, 100.0 / 255]])
    bar = 100.2 / 255
    made = eight_bit(Task(x, seeds, torch.tensor([[0.4 / 255, 1.0]]), sum_above(torch.tensor([bar]))))
    assert torch.equal(made.x[:, 0], seeds[:, 0])
    assert as_image(made.x, (0.0, 1.0)).sum() >= bar
    assert (made.x[0, 1] * 255).round().item() == 101.0


def test_a_part_that_can_go_after_all_goes() -> None:
    """Two entries are needed while their sum decides; on the line the first alone would do."""

    def fails(rows: Tensor, x: Tensor) -> Tensor:
        both = (x[:, 0] > 0) & (x[:, 1] > 0)
        return ((both & (x.sum(1) > 1.1)) | ((x[:, 0] > 0.3) & (x[:, 0] < 0.7))).float()

    made = shrunk(ONES[:1], SEEDS[:1], fails, passes_of("entries,line", (2,)))
    assert bool(fails(torch.arange(1), made.x).all())
    assert made.minimal.tolist() == [True]
    assert int((made.x != 0).sum()) == 1
