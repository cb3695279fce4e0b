"""Balls: sizes, nearest points, steepest directions, random points."""

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from assay.core import norms
from assay.core.errors import UsageError
from assay.core.norms import NORMS, Norm
from assay.core.randomness import Rows, Stream


def rows(n: int) -> Rows:
    return Stream(11, ("norms",)).rows(torch.arange(n))


def nearest_in_l1_ball(v: npt.NDArray[np.float64], radius: float) -> npt.NDArray[np.float64]:
    """By bisection of the soft threshold: slow, and not the algorithm under test."""
    if np.abs(v).sum() <= radius:
        return v
    low, high = 0.0, float(np.abs(v).max())
    for _ in range(200):
        level = (low + high) / 2
        if np.maximum(np.abs(v) - level, 0).sum() > radius:
            low = level
        else:
            high = level
    return np.asarray(np.sign(v) * np.maximum(np.abs(v) - high, 0))


@pytest.mark.parametrize(("norm", "expected"), [("linf", 4.0), ("l2", 5.0), ("l1", 7.0), ("l0", 2.0)])
def test_size_by_hand(norm: Norm, expected: float) -> None:
    delta = torch.tensor([[[3.0, 0.0], [-4.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]])
    assert norms.size(delta, norm).tolist() == [expected, 0.0]


@pytest.mark.parametrize(
    ("norm", "eps", "expected"),
    [
        ("linf", 2.0, [2.0, -2.0, 0.0, 1.0]),
        ("l2", 3.5, [3.0, -1.5, 0.0, 1.0]),  # half of 7
        ("l1", 4.0, [3.5, -0.5, 0.0, 0.0]),  # soft threshold at 2.5
        ("l0", 2.0, [6.0, -3.0, 0.0, 0.0]),
        ("l0", 1.9, [6.0, 0.0, 0.0, 0.0]),
    ],
)
def test_project_by_hand(norm: Norm, eps: float, expected: list[float]) -> None:
    last = 2.0 if norm == "l2" else 1.0
    delta = torch.tensor([[6.0, -3.0, 0.0, last]])
    assert norms.project(delta, eps, norm)[0].tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("norm", NORMS)
def test_points_inside_stay_bit_for_bit(norm: Norm) -> None:
    delta = rows(50).uniform((2, 3), -1.0, 1.0)
    eps = norms.size(delta, norm)  # on the surface counts as inside
    assert torch.equal(norms.project(delta, eps, norm), delta)


@pytest.mark.parametrize("norm", NORMS)
def test_projecting_twice_is_projecting_once(norm: Norm) -> None:
    delta = rows(50).uniform((2, 3), -5.0, 5.0)
    once = norms.project(delta, 2.0, norm)
    assert bool((norms.size(once, norm) <= 2.0 + 1e-6).all())
    assert torch.allclose(norms.project(once, 2.0, norm), once, atol=1e-6, rtol=0)


@pytest.mark.parametrize("norm", NORMS)
def test_each_row_has_its_own_budget(norm: Norm) -> None:
    delta = rows(4).uniform((6,), -5.0, 5.0)
    eps = torch.tensor([0.0, 1.0, 2.5, 100.0])
    together = norms.project(delta, eps, norm)
    apart = [norms.project(delta[i : i + 1], float(eps[i]), norm) for i in range(4)]
    assert torch.allclose(together, torch.cat(apart), atol=1e-6)
    assert together[0].abs().max().item() == 0.0
    assert torch.equal(together[3], delta[3])


@pytest.mark.parametrize("norm", NORMS)
def test_memory_order_does_not_matter(norm: Norm) -> None:
    delta = rows(4).uniform((3, 4, 5), -1.0, 1.0)
    strided = delta.contiguous(memory_format=torch.channels_last)
    assert torch.allclose(norms.project(strided, 1.5, norm), norms.project(delta, 1.5, norm))
    assert torch.allclose(norms.steepest(strided, norm), norms.steepest(delta, norm))


@given(
    st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=8),
    st.floats(0, 20, width=32),
)
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
def test_l1_projection_is_the_nearest_point(entries: list[float], radius: float) -> None:
    v = torch.tensor([entries], dtype=torch.float64)
    ours = norms.project(v, radius, "l1")[0].numpy()
    assert np.allclose(ours, nearest_in_l1_ball(v[0].numpy(), radius), atol=1e-9)


def test_l1_projection_of_many_single_precision_entries() -> None:
    delta = rows(3).uniform((3072,), -1.0, 1.0)
    ours = norms.project(delta, 12.0, "l1")
    for row, mine in zip(delta.double().numpy(), ours.numpy(), strict=True):
        assert np.allclose(mine, nearest_in_l1_ball(row, 12.0), atol=1e-5)
    assert norms.size(ours, "l1").tolist() == pytest.approx([12.0] * 3, abs=1e-3)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_no_sampled_point_of_the_ball_is_nearer(norm: Norm) -> None:
    point = torch.tensor([[2.0, -1.0, 0.5]])
    nearest = norms.project(point, 1.0, norm)
    others = norms.random_point((3,), 1.0, norm, rows(4000))
    assert (others - point).norm(dim=1).min().item() >= (nearest - point).norm().item() - 1e-6


def test_l0_keeps_the_largest_entries_and_the_first_of_equals() -> None:
    delta = torch.tensor([[1.0, -3.0, 2.0, -2.0], [1.0, 1.0, 1.0, 1.0]])
    assert norms.project(delta, 2, "l0").tolist() == [[0.0, -3.0, 2.0, 0.0], [1.0, 1.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("norm", "expected"),
    [
        ("linf", [[1.0, -1.0, 0.0], [0.0, 0.0, 0.0]]),
        ("l2", [[0.6, -0.8, 0.0], [0.0, 0.0, 0.0]]),
        ("l1", [[0.0, -1.0, 0.0], [0.0, 0.0, 0.0]]),
        ("l0", [[0.0, -1.0, 0.0], [0.0, 0.0, 0.0]]),
    ],
)
def test_steepest_by_hand(norm: Norm, expected: list[list[float]]) -> None:
    grad = torch.tensor([[3.0, -4.0, 0.0], [0.0, 0.0, 0.0]])
    for ours, right in zip(norms.steepest(grad, norm).tolist(), expected, strict=True):
        assert ours == pytest.approx(right, abs=1e-6)


@pytest.mark.parametrize(("norm", "dual"), [("linf", "l1"), ("l2", "l2"), ("l1", "linf")])
def test_steepest_reaches_the_dual_norm(norm: Norm, dual: Norm) -> None:
    grad = rows(20).uniform((2, 5), -1.0, 1.0)
    direction = norms.steepest(grad, norm)
    assert norms.size(direction, norm).tolist() == pytest.approx([1.0] * 20, abs=1e-6)
    gain = (grad * direction).flatten(1).sum(1)
    assert torch.allclose(gain, norms.size(grad, dual), atol=1e-5)


@pytest.mark.parametrize("norm", NORMS)
def test_random_points_lie_in_the_ball_of_their_row(norm: Norm) -> None:
    eps = torch.linspace(0.0, 3.0, 200)
    points = norms.random_point((2, 3), eps, norm, rows(200))
    assert points.shape == (200, 2, 3)
    assert bool((norms.size(points, norm) <= eps * (1 + 1e-5)).all())
    assert points[0].abs().max().item() == 0.0


@pytest.mark.parametrize(("norm", "share"), [("linf", 0.99), ("l2", 0.99), ("l1", 0.99), ("l0", 1.0)])
def test_random_points_reach_near_the_surface(norm: Norm, share: float) -> None:
    points = norms.random_point((3,), 2.0, norm, rows(2000))
    assert norms.size(points, norm).max().item() >= 2.0 * share


@pytest.mark.parametrize(
    ("norm", "expected"),
    [("linf", 3 / 4), ("l2", 3 / 4), ("l1", 3 / 4)],  # the mean size of a uniform point in d dimensions is d / (d + 1)
)
def test_random_points_are_uniform_in_the_ball(norm: Norm, expected: float) -> None:
    points = norms.random_point((3,), 1.0, norm, rows(20_000))
    assert norms.size(points, norm).mean().item() == pytest.approx(expected, abs=0.006)
    assert points.mean(0).tolist() == pytest.approx([0.0] * 3, abs=0.02)
    assert float((points > 0).float().mean()) == pytest.approx(0.5, abs=0.01)


def test_random_l0_points_change_exactly_eps_entries_and_choose_them_evenly() -> None:
    points = norms.random_point((4,), 3.7, "l0", rows(4000))
    assert norms.size(points, "l0").unique().tolist() == [3.0]
    assert (points != 0).float().mean(0).tolist() == pytest.approx([0.75] * 4, abs=0.03)


@pytest.mark.parametrize("norm", NORMS)
def test_random_points_do_not_depend_on_the_batch(norm: Norm) -> None:
    whole = norms.random_point((2, 2), 1.5, norm, rows(9))
    part = norms.random_point((2, 2), 1.5, norm, rows(9)[4:6])
    assert torch.equal(part, whole[4:6])


@pytest.mark.parametrize("norm", NORMS)
def test_an_empty_batch_stays_empty(norm: Norm) -> None:
    nothing = torch.zeros(0, 1, 2, 2)

    def shape(result: Tensor) -> tuple[int, ...]:
        return tuple(result.shape)

    assert shape(norms.size(nothing, norm)) == (0,)
    assert shape(norms.project(nothing, 1.0, norm)) == (0, 1, 2, 2)
    assert shape(norms.project(nothing, torch.zeros(0), norm)) == (0, 1, 2, 2)
    assert shape(norms.steepest(nothing, norm)) == (0, 1, 2, 2)
    assert shape(norms.random_point((1, 2, 2), 1.0, norm, rows(0))) == (0, 1, 2, 2)


def test_only_our_norms_are_known() -> None:
    assert [norms.check(norm) for norm in NORMS] == ["linf", "l2", "l1", "l0"]
    with pytest.raises(UsageError, match="norm must be one of linf, l2, l1, l0, got 'l3'"):
        norms.check("l3")


@pytest.mark.parametrize("scale", [1e-13, 1e-20, 1e-37])
def test_steepest_of_a_tiny_gradient_has_unit_length(scale: float) -> None:
    grad = torch.tensor([[3.0, -4.0, 0.0]]) * scale
    assert norms.steepest(grad, "l2")[0].tolist() == pytest.approx([0.6, -0.8, 0.0], abs=1e-6)


@pytest.mark.parametrize("norm", NORMS)
def test_a_size_is_not_negative(norm: Norm) -> None:
    assert [norms.check(norm, eps) for eps in (0.0, 1.0, 2.5)] == [norm] * 3
    with pytest.raises(UsageError, match=r"eps must not be negative, got -0\.1"):
        norms.check(norm, -0.1)


def test_l0_counts_entries() -> None:
    assert norms.check("linf", 0.1) == "linf"
    with pytest.raises(UsageError, match=r"eps of l0 counts changed entries and must be at least 1, got 0\.1"):
        norms.check("l0", 0.1)
