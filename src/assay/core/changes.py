"""How much of an image has changed, as DeepHunter counts it."""

from torch import Tensor

GREY_LEVEL = 1 / 255  # of the range


def changes(x: Tensor, reference: Tensor, bounds: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """How many values of each row differ from the reference, int64 (N,), and the largest difference, (N,).

    A value has changed when it differs by half a grey level or more: less is none in the paper's 8-bit images, and may
    be rounding in ours.
    """
    gap = (x - reference).abs().flatten(1)
    least = (bounds[1] - bounds[0]) * GREY_LEVEL / 2
    return (~(gap < least)).sum(1), gap.amax(1)


def few_or_small(
    count: Tensor, largest: Tensor, values: int, bounds: tuple[float, float], alpha: float, beta: float
) -> Tensor:
    """Fewer than ``alpha`` of the values changed, whatever they became, or each by less than ``beta`` of the range."""
    return (count < alpha * values) | (largest < beta * (bounds[1] - bounds[0]))
