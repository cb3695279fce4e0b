"""What attacks by labels alone begin with: a point on the other side, brought back to the border by bisection."""

import math

import torch
from torch import Tensor

from assay.core.chunks import Chunks
from assay.core.norms import Norm
from assay.core.randomness import Rows
from assay.core.shapes import column
from assay.stages.attacks.squares import image_of
from assay.subjects.target import Target

INPUTS = 4096  # the most inputs of one call on an accelerator
INPUTS_CPU = 256  # and on a CPU, where larger calls fall out of the cache: half the speed at 4096
ENTRIES = 2**25  # and the most numbers in it
_COARSE = (4, 7, 14, 28)  # blocks along the longer side


class Labels:
    """The other side, seen through labels alone: not the label ``y``, or where targeted the label ``y``."""

    def __init__(self, target: Target, targeted: bool, shape: tuple[int, ...]) -> None:
        self.target, self.targeted = target, targeted
        inputs = INPUTS_CPU if target.device.type == "cpu" else INPUTS
        self.call = max(1, min(inputs, ENTRIES // max(1, math.prod(shape))))
        self.chunks = Chunks(self.call)

    def reached(self, points: Tensor, y: Tensor) -> Tensor:
        """Which points (M, *shape) are on the other side for their ``y`` (M,); (M,)."""
        same = self.chunks.map(lambda part: self.target(part).argmax(1), points) == y
        return same if self.targeted else ~same


def find_start(labels: Labels, x: Tensor, y: Tensor, rng: Rows, tries: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random points on the other side: the rows that have one (M,), the points (M, *shape), queries spent (M,).

    Rows that are on the other side as they are have no start, and need none.
    """
    found, points, spent = [], [], []
    rows = (~labels.reached(x, y)).nonzero().squeeze(1)
    for attempt in range(tries):
        if not len(rows):
            break
        noise = _noise(x[rows], labels.target.spec.bounds, rng[rows].at(attempt), attempt)
        hit = labels.reached(noise, y[rows])
        found.append(rows[hit])
        points.append(noise[hit])
        spent.append(torch.full_like(found[-1], attempt + 2))  # the clean input was asked too
        rows = rows[~hit]
    if not found:
        return rows[:0], x[:0], rows[:0]
    return torch.cat(found), torch.cat(points), torch.cat(spent)


def _noise(x: Tensor, bounds: tuple[float, float], rng: Rows, attempt: int) -> Tensor:
    """Uniform noise first, then black and white blocks of several sizes, a random share of them white.

    Paper (Boundary, HopSkipJump): uniform noise only. Here: also blocks, because nets answer all uniform noise with one
    or two classes, and inputs of these would stay without a start.
    """
    low, high = bounds
    channels, rows, columns = image_of(tuple(x.shape[1:]))
    level = rng.at(0).uniform((channels, rows * columns)).to(x.dtype)
    if attempt:
        side = max(1, max(rows, columns) // _COARSE[attempt % len(_COARSE)])
        down, along = (torch.arange(n, device=x.device) // side for n in (rows, columns))
        block = (down[:, None] * columns + along).flatten()
        level = (level[:, :, block] < rng.at(1).uniform((1, 1))).to(x.dtype)
    return (low + (high - low) * level).view_as(x)


def bisect(labels: Labels, x: Tensor, far: Tensor, y: Tensor, norm: Norm, steps: int) -> Tensor:
    """The point nearest to ``x`` between it and ``far`` that is on the other side, by halving ``steps`` times.

    Between means on the straight line in l2, and ``far`` clamped to smaller balls in linf.
    """
    reach = (far - x).flatten(1).abs().amax(1)
    near, end = torch.zeros_like(reach), torch.ones_like(reach)

    def between(share: Tensor) -> Tensor:
        if norm == "linf":
            radius = column(share * reach, x)
            point = torch.clamp(far, x - radius, x + radius)
        else:
            point = torch.lerp(x, far, column(share, x))
        return torch.where(column(share < 1, x), point, far)  # rounding must not move the end

    for _ in range(steps):
        middle = (near + end) / 2
        hit = labels.reached(between(middle), y)
        near, end = torch.where(hit, near, middle), torch.where(hit, middle, end)
    return between(end)
