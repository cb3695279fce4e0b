"""What counts as changed."""

import torch

from assay.core.changes import changes, few_or_small


def test_half_a_grey_level_counts_and_less_does_not() -> None:
    for low, high in ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0)):
        level = (high - low) / 255
        reference = torch.full((1, 1, 2, 3), low)
        x = reference.clone()
        x.view(-1)[:4] += torch.tensor([0.49, 0.51, 3.0, -2.0]) * level
        count, largest = changes(x, reference, (low, high))
        assert count.tolist() == [3]
        assert torch.allclose(largest, torch.tensor([3.0 * level]), rtol=1e-4)


def test_nan_is_a_change() -> None:
    count, largest = changes(torch.tensor([[float("nan"), 0.0]]), torch.zeros(1, 2), (0.0, 1.0))
    assert count.tolist() == [1]
    assert largest.isnan().all()


def test_the_rule_is_strict_at_both_edges() -> None:
    count, largest = torch.tensor([1, 2, 2, 2, 100]), torch.tensor([1.0, 1.0, 0.5, 0.49, 0.49])
    fits = few_or_small(count, largest, 100, (0.0, 1.0), 0.02, 0.5)
    assert fits.tolist() == [True, False, False, True, True]
    wide = few_or_small(count, 2 * largest, 100, (-1.0, 1.0), 0.02, 0.5)
    assert wide.tolist() == fits.tolist(), "beta is a share of the range"


def test_none_at_all() -> None:
    count, largest = changes(torch.zeros(0, 1, 4, 4), torch.zeros(0, 1, 4, 4), (0.0, 1.0))
    assert count.shape == largest.shape == (0,)
