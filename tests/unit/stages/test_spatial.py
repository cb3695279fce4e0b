"""Rotation and translation on models whose weak spot is a place in the image."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from assay.core.cases import InputSpec
from assay.core.errors import UsageError
from assay.core.randomness import Rows, Stream
from assay.stages.attacks.spatial import moved, spatial
from assay.subjects.sources.module import ModuleTarget

Make = Callable[..., ModuleTarget]


def rows(n: int) -> Rows:
    return Stream(0).rows(torch.arange(n))


class Spot(nn.Module):
    """Scores 0.5 for class 0, and for class 1 the pixels (row, column) times their weights."""

    def __init__(self, weights: dict[tuple[int, int], float], classes: int = 2) -> None:
        super().__init__()
        self.weights, self.classes = weights, classes
        self.inputs: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.inputs.append(len(x))
        score = sum(
            (weight * x[:, 0, i, j] for (i, j), weight in self.weights.items()), torch.zeros_like(x[:, 0, 0, 0])
        )
        return torch.stack([torch.full_like(score, 0.5), score, *[score - 9] * (self.classes - 2)], 1)


def spot(weights: dict[tuple[int, int], float], bounds: tuple[float, float] = (0.0, 1.0)) -> tuple[ModuleTarget, Spot]:
    net = Spot(weights)
    return ModuleTarget(net, InputSpec((1, 8, 8), bounds, ("a", "b"))), net


def dot(i: int, j: int, n: int = 1) -> Tensor:
    """Black images of 8×8 with one white pixel."""
    x = torch.zeros(n, 1, 8, 8)
    x[:, :, i, j] = 1
    return x


def zeros(n: int) -> Tensor:
    return torch.zeros(n, dtype=torch.int64)


def test_a_quarter_turn_is_a_quarter_turn() -> None:
    x = torch.rand(2, 3, 9, 9, generator=torch.Generator().manual_seed(0)).double()
    move = torch.tensor([[math.pi / 2, 0.0, 0.0], [-math.pi / 2, 0.0, 0.0]]).double()
    expected = torch.stack([torch.rot90(x[0], -1, (1, 2)), torch.rot90(x[1], 1, (1, 2))])
    assert torch.allclose(moved(x, move, 0.0), expected, atol=1e-6)
    wide = x[:, :, :5]
    half = torch.tensor([[math.pi, 0.0, 0.0]] * 2).double()
    assert torch.allclose(moved(wide, half, 0.0), wide.flip(2, 3), atol=1e-6)


def test_a_turn_of_a_wide_image_does_not_stretch_it() -> None:
    x = torch.zeros(1, 1, 5, 21, dtype=torch.float64)
    x[..., 2, 12] = 1  # two pixels right of the middle: a quarter turn puts it two below
    made = moved(x, torch.tensor([[math.pi / 2, 0.0, 0.0]]).double(), 0.0)
    assert float(made[0, 0, 4, 10]) == pytest.approx(1)


def test_a_shift_is_a_share_of_the_side_and_brings_in_the_low_bound() -> None:
    x = torch.rand(1, 1, 4, 8, generator=torch.Generator().manual_seed(0))
    made = moved(x, torch.tensor([[0.0, 0.25, -0.25]]), -1.0)
    assert torch.allclose(made[..., :3, 2:], x[..., 1:, :6], atol=1e-6)
    assert torch.allclose(made[..., 3:, :], torch.tensor(-1.0))
    assert torch.allclose(made[..., :2], torch.tensor(-1.0))


def test_a_shift_after_a_turn_goes_the_way_it_says() -> None:
    x = dot(4, 4)
    made = moved(x, torch.tensor([[math.pi / 2, 0.25, 0.0]]), 0.0)
    assert float(made[0, 0, 4, 5]) == pytest.approx(1, abs=1e-5)  # (4, 4) turns to (4, 3), two right is (4, 5)


def test_a_row_has_the_same_bits_alone() -> None:
    x = torch.rand(7, 3, 28, 20, generator=torch.Generator().manual_seed(0))
    move = rows(7).uniform((3,), -0.5, 0.5)
    whole = moved(x, move, 0.0)
    for i in range(7):
        assert torch.equal(moved(x[i : i + 1], move[i : i + 1], 0.0), whole[i : i + 1])


def test_the_grid_finds_the_one_shift_that_fools() -> None:
    target, _ = spot({(5, 6): 1.0})
    made = spatial(target, dot(4, 4, 3), zeros(3), rng=rows(3), rotation=0.0, shift=0.25)
    assert torch.allclose(made, dot(5, 6, 3), atol=1e-5)


def test_the_grid_finds_the_one_turn_that_fools() -> None:
    target, _ = spot({(3, 5): 1.0})
    made = spatial(target, dot(2, 3), zeros(1), rng=rows(1), rotation=90.0, angles=3, shift=0.0)
    assert torch.allclose(made, dot(3, 5), atol=1e-5)


def test_strong_moves_come_first_and_the_first_that_fools_comes_back() -> None:
    target, net = spot({(4, 5): 3.0, (6, 6): 1.0})
    made = spatial(target, dot(4, 4), zeros(1), rng=rows(1), rotation=0.0, shift=0.25)
    assert torch.allclose(made, dot(6, 6), atol=1e-5)
    assert net.inputs == [1, 1, 2, 4]  # the image, then twice as many moves each time


def test_without_success_the_highest_loss_comes_back() -> None:
    target, net = spot({(4, 5): 0.3, (4, 6): 0.4})
    made = spatial(target, dot(4, 4), zeros(1), rng=rows(1), rotation=0.0, shift=0.25)
    assert torch.allclose(made, dot(4, 6), atol=1e-5)
    assert sum(net.inputs) == 25  # the image itself and 24 shifts


def test_what_is_fooled_already_comes_back_to_the_bit_and_costs_one_pass() -> None:
    target, net = spot({(4, 4): 1.0})
    x = dot(4, 4, 2) * 0.9
    made = spatial(target, x, zeros(2), rng=rows(2))
    assert torch.equal(made, x)
    assert net.inputs == [2]


def test_fooled_rows_leave_and_calls_stay_within_their_limit() -> None:
    target, net = spot({(6, 6): 1.0})
    x = torch.cat([dot(4, 4, 30), torch.zeros(10, 1, 8, 8)])
    spatial(target, x, zeros(40), rng=rows(40), rotation=5.0, shift=0.25)
    robust = 10 * (31 * 25 - 1)
    assert 0 < sum(net.inputs) - 40 - robust < 30 * 20  # the shift by two right and down is among the strongest moves
    assert max(net.inputs) <= 2048
    assert len(net.inputs) < 20


def test_random_tries_are_few_and_the_rows_own() -> None:
    target, net = spot({(4, 6): 0.4})
    x = dot(4, 4, 6)
    made = spatial(target, x, zeros(6), rng=rows(6), search="random", shift=0.25)
    assert sum(net.inputs) == 6 * 11
    assert len(made.flatten(1).unique(dim=0)) > 1
    again = spatial(target, x[2:4], zeros(2), rng=rows(6)[2:4], search="random", shift=0.25)
    assert torch.equal(again, made[2:4])


def test_more_random_tries_find_more() -> None:
    target, _ = spot({(4, 6): 1.0})
    x = dot(4, 4, 100)
    fooled = [
        int(
            (
                target(spatial(target, x, zeros(100), rng=rows(100), search="random", shift=0.25, tries=n))[:, 1] > 0.5
            ).sum()
        )
        for n in (2, 40)
    ]
    assert fooled[0] < fooled[1]
    assert fooled[1] > 50


def test_targeted_goes_to_the_class_asked_for(linear_target: Make) -> None:
    target = linear_target(shape=(1, 8, 8), classes=3)
    x = torch.rand(30, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    want = (target(x).argmax(1) + 1) % 3
    made = spatial(target, x, want, rng=rows(30), targeted=True)
    assert (target(made).argmax(1) == want).float().mean() > 0.8


@pytest.mark.parametrize("search", ["grid", "random"])
def test_bounds_and_double_precision_are_kept(search: str) -> None:
    target, _ = spot({(4, 6): 0.01}, (-2.0, 5.0))
    x = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0)).double() * 7 - 2
    made = spatial(target, x, zeros(4), rng=rows(4), search=search, angles=5)
    assert made.dtype == torch.float64
    assert made.min() >= -2
    assert made.max() <= 5


def test_what_cannot_be_is_refused(linear_target: Make) -> None:
    vector, image = linear_target(shape=(16,)), linear_target(shape=(1, 8, 8))
    with pytest.raises(UsageError, match="images"):
        spatial(vector, torch.zeros(1, 16), zeros(1), rng=rows(1))
    with pytest.raises(UsageError, match="grid or random"):
        spatial(image, torch.zeros(1, 1, 8, 8), zeros(1), rng=rows(1), search="gird")
    for bad in ({"rotation": 200.0}, {"shift": 1.0}, {"angles": 0}, {"shifts": 0}, {"tries": 0}, {"rotation": -1.0}):
        with pytest.raises(UsageError, match="spatial needs"):
            spatial(image, torch.zeros(1, 1, 8, 8), zeros(1), rng=rows(1), **bad)
