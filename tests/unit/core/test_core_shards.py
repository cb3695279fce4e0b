"""Tensors as bytes and back."""

import pytest
import torch

from assay.core import shards
from assay.core.errors import UsageError


def test_round_trip_keeps_names_types_shapes_and_bits() -> None:
    columns = {
        "x": torch.tensor([[0.1, float("nan")], [float("inf"), -0.0]]),
        "y": torch.tensor([1, -1]),
        "flag": torch.tensor([True, False]),
        "pixels": torch.tensor([0, 255], dtype=torch.uint8),
        "half": torch.tensor([1.5], dtype=torch.bfloat16),
        "empty": torch.zeros(0, 1, 2),
    }
    back = shards.decode(shards.encode(columns))
    assert set(back) == set(columns)
    for name, column in columns.items():
        assert back[name].dtype == column.dtype
        assert torch.equal(back[name].nan_to_num(7.0), column.nan_to_num(7.0))
        assert back[name].shape == column.shape


def test_the_same_columns_are_the_same_bytes() -> None:
    a, b = torch.arange(3.0), torch.arange(4)
    assert shards.encode({"a": a, "b": b}) == shards.encode({"b": b.clone(), "a": a.clone()})


def test_strided_and_attached_tensors_can_be_stored() -> None:
    x = torch.arange(6.0).view(2, 3).requires_grad_(True)
    back = shards.decode(shards.encode({"t": x.t()}))["t"]
    assert back.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert not back.requires_grad


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 64, b"<html></html>"])
def test_what_is_no_shard_is_refused(content: bytes) -> None:
    with pytest.raises(UsageError, match="not a valid shard"):
        shards.decode(content)


def test_a_cut_shard_is_refused() -> None:
    whole = shards.encode({"x": torch.arange(10.0)})
    for length in range(len(whole)):
        with pytest.raises(UsageError, match="not a valid shard"):
            shards.decode(whole[:length])
