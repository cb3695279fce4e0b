"""Aims: when an attack is there, for classes, several labels and numbers."""

from pathlib import Path

import pytest
import torch

from assay.core.aims import aim
from assay.core.errors import UsageError


def test_untargeted_and_targeted_are_opposites() -> None:
    logits, y = torch.tensor([[2.0, 1.0], [0.0, 3.0]]), torch.tensor([0, 0])
    away, towards = aim("margin"), aim("margin", targeted=True)
    assert away.hit(logits, y).tolist() == [False, True]
    assert towards.hit(logits, y).tolist() == [True, False]
    assert torch.equal(away.gain(logits, y), -towards.gain(logits, y))


def test_top_k() -> None:
    logits = torch.tensor([[3.0, 2.0, 1.0]])
    assert [aim("ce", "top(k=2)").hit(logits, torch.tensor([y])).item() for y in range(3)] == [False, False, True]


def test_several_labels_and_numbers() -> None:
    labels = torch.tensor([[1, 0], [1, 0]])
    assert aim("multilabel", "every_label").hit(torch.tensor([[1.0, -1.0], [1.0, 1.0]]), labels).tolist() == [0, 1]
    off = aim("squared", "within(tolerance=0.5)").hit(torch.tensor([[1.4], [1.6]]), torch.tensor([1.0, 1.0]))
    assert off.tolist() == [False, True]


def test_a_function_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def never(outputs, y):\n    return outputs[:, 0] < 0\n")
    assert aim("ce", f"{tmp_path}/own.py:never").hit(torch.tensor([[1.0, 2.0]]), torch.tensor([0])).item()


def test_unknown_names_say_what_is_meant() -> None:
    with pytest.raises(UsageError, match="did you mean 'margin'"):
        aim("margn")
    with pytest.raises(UsageError, match="unknown criterion"):
        aim("ce", "best")
