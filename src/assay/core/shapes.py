"""Shapes of batches."""

from torch import Tensor


def column(values: Tensor, like: Tensor) -> Tensor:
    """One value a row (N,), shaped to meet inputs (N, *shape).

    >>> import torch
    >>> column(torch.tensor([1, 2]), torch.zeros(2, 3, 4)).shape
    torch.Size([2, 1, 1])
    """
    return values.view(-1, *([1] * (like.dim() - 1)))
