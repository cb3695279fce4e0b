"""Losses per case, and the gradients that attacks climb."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from assay.core import losses


def gradient(logits: Tensor, y: Tensor) -> Tensor:
    leaf = logits.clone().requires_grad_(True)
    losses.cross_entropy(leaf, y).sum().backward()
    assert leaf.grad is not None
    return leaf.grad


def sample(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(0)
    return torch.randn(20, 5, generator=made, dtype=dtype) * 4, torch.randint(5, (20,), generator=made)


def test_cross_entropy_by_hand() -> None:
    logits = torch.tensor([[0.0, math.log(3.0)], [0.0, math.log(3.0)]])
    assert losses.cross_entropy(logits, torch.tensor([0, 1])).tolist() == pytest.approx([math.log(4), math.log(4 / 3)])


def test_cross_entropy_is_torchs() -> None:
    logits, y = sample(torch.float32)
    ours = losses.cross_entropy(logits, y)
    assert ours.shape == (20,)
    assert torch.allclose(ours, F.cross_entropy(logits, y, reduction="none"), rtol=1e-5, atol=1e-6)


def test_the_gradient_is_torchs_in_double_precision() -> None:
    logits, y = sample(torch.float64)
    leaf = logits.clone().requires_grad_(True)
    F.cross_entropy(leaf, y, reduction="sum").backward()
    assert leaf.grad is not None
    assert torch.allclose(gradient(logits, y), leaf.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("gap", [1.0, 10.0, 20.0, 30.0, 60.0])
def test_the_gradient_of_a_very_sure_case_is_exact_in_single_precision(gap: float) -> None:
    # With logits (gap, 0, 0) and label 0: p of the others is e^-gap / (1 + 2 e^-gap) each.
    other = math.exp(-gap) / (1 + 2 * math.exp(-gap))
    grad = gradient(torch.tensor([[gap, 0.0, 0.0]]), torch.tensor([0]))[0]
    assert grad.tolist() == pytest.approx([-2 * other, other, other], rel=1e-5, abs=0)


def test_the_loss_of_a_very_sure_case_is_exact_in_single_precision() -> None:
    value = losses.cross_entropy(torch.tensor([[30.0, 0.0, 0.0]]), torch.tensor([0]))
    assert value.item() == pytest.approx(2 * math.exp(-30), rel=1e-5, abs=0)


@pytest.mark.parametrize("gap", [30.0, 1000.0])
def test_a_very_wrong_case_has_a_finite_loss_and_gradient(gap: float) -> None:
    logits, y = torch.tensor([[0.0, gap]]), torch.tensor([0])
    assert losses.cross_entropy(logits, y).item() == gap
    assert gradient(logits, y).tolist() == [[-1.0, 1.0]]


def test_margin_by_hand() -> None:
    logits = torch.tensor([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0], [1.0, 1.0, 0.0]])
    assert losses.margin(logits, torch.tensor([0, 1, 0])).tolist() == [-1.0, 2.0, 0.0]


def test_margin_is_positive_exactly_where_the_case_is_misclassified() -> None:
    logits, y = sample(torch.float32)  # no two logits of a row are equal
    assert torch.equal(losses.margin(logits, y) > 0, logits.argmax(1) != y)


def test_losses_leave_their_inputs_alone() -> None:
    logits, y = sample(torch.float32)
    before = logits.clone()
    losses.cross_entropy(logits, y)
    losses.margin(logits, y)
    assert torch.equal(logits, before)


@pytest.mark.parametrize("name", ["ce", "margin", "dlr"])
def test_an_empty_batch_has_no_losses(name: str) -> None:
    value = losses.LOSSES[name](torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
    assert value.shape == (0,)


def test_dlr_by_hand_and_unmoved_by_shift_and_scale() -> None:
    logits, y = torch.tensor([[5.0, 3.0, 1.0, 0.0]]), torch.tensor([0])
    assert losses.dlr(logits, y).item() == pytest.approx(-2 / 4)
    assert losses.dlr(7 * logits + 3, y).item() == pytest.approx(-2 / 4)
    assert losses.dlr_towards(logits, y, torch.tensor([2])).item() == pytest.approx(-4 / (5 - 0.5))
    assert losses.dlr(logits[:, :2], y).item() == pytest.approx(-2)


def test_multilabel_and_squared_by_hand() -> None:
    y = torch.tensor([[1.0, 0.0]])
    assert losses.multilabel(torch.zeros(1, 2), y).item() == pytest.approx(2 * math.log(2))
    assert losses.squared(torch.tensor([[3.0], [0.0]]), torch.tensor([1.0, 0.5])).tolist() == [4.0, 0.25]


def test_smoothing_by_hand() -> None:
    # 0.95 of the mass on the label and 0.05 on the other: 0.95 log(4/3) + 0.05 log 4.
    logits = torch.tensor([[0.0, math.log(3.0)]])
    right = math.log(4) - 0.95 * math.log(3)
    assert losses.smoothed(logits, torch.tensor([1]), 0.1).tolist() == pytest.approx([right])
