"""Tensors as bytes: safetensors, the same input giving the same bytes."""

from collections.abc import Mapping

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from assay.core.errors import UsageError


def encode(columns: Mapping[str, Tensor]) -> bytes:
    """The columns as one safetensors file."""
    content: bytes = save({name: column.detach().cpu().contiguous() for name, column in columns.items()})
    return content


def decode(content: bytes) -> dict[str, Tensor]:
    """The columns of such a file."""
    try:
        columns: dict[str, Tensor] = load(content)
    except SafetensorError as error:
        raise UsageError(f"not a valid shard: {error}") from error
    return columns
