"""Rotation and translation: the spatial attack."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.aims import Aim, Criterion, aim
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.images import sample
from assay.core.losses import Loss
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.subjects.target import Target

MOST_INPUTS = 2048  # of one call
MOST_NUMBERS = 2**25  # in the inputs of one call, so that large images do not fill the memory


@register("attack", paper="Engstrom et al. 2019", needs=("prob",))
def spatial(
    target: Target,
    x: Tensor,
    y: Tensor,
    *,
    rng: Rows,
    rotation: float = 30.0,
    shift: float = 0.1,
    search: str = "grid",
    angles: int = 31,
    shifts: int = 5,
    tries: int = 10,
    targeted: bool = False,
    loss: str | Loss = "ce",
    criterion: str | Criterion = "top",
) -> Tensor:
    """Images rotated and shifted, over a grid or at random, until one is adversarial; else the one of highest loss.

    Up to ``rotation`` degrees and a ``shift`` in shares of each side. ``search`` is ``grid``, of so many ``angles`` and
    ``shifts`` along either side, strong ones first, or ``random``, with so many ``tries``.

    Formula: x' = image rotated by θ and shifted by (a, b), |θ| ≤ rotation, |a|, |b| ≤ shift · side; the first wrong
    answer, else argmax L.
    """
    if x.dim() != 4:
        raise UsageError(f"spatial rotates images (channels, height, width), not inputs of shape {tuple(x.shape[1:])}")
    if search not in ("grid", "random"):
        raise UsageError(f"spatial searches grid or random, not {search!r}")
    if not (0 <= rotation <= 180 and 0 <= shift < 1 and min(angles, shifts, tries) >= 1):
        told = f"rotation {rotation}, shift {shift}, angles {angles}, shifts {shifts}, tries {tries}"
        raise UsageError(f"spatial needs rotation 0 to 180, shift 0 to below 1, counts of 1 or more; got {told}")
    hunt = _Hunt(target, aim(loss, criterion, targeted))
    if not len(x):
        return x.clone()
    if search == "grid":
        moves = _grid(angles if rotation else 1, shifts if shift else 1).to(x).expand(len(x), -1, -1)
    else:
        moves = rng.uniform((tries, 3), -1.0, 1.0).to(x.dtype)
    with target.ready(), torch.no_grad():
        return hunt.run(x, y, moves * x.new_tensor((math.radians(rotation), shift, shift)))


def moved(x: Tensor, move: Tensor, low: float) -> Tensor:
    """Images turned clockwise by ``move[:, 0]`` radians, then moved right and down by shares of a side, (N, C, H, W).

    Bilinear; what comes in from outside has the value ``low``. One row gives the same bits as in a batch.
    """
    height, width = x.shape[-2:]
    turn, right, below = move[:, :, None, None].unbind(1)
    across = torch.arange(width, device=x.device, dtype=x.dtype) - (width - 1) / 2 - right * width
    down = torch.arange(height, device=x.device, dtype=x.dtype)[:, None] - (height - 1) / 2 - below * height
    cos, sin = turn.cos(), turn.sin()
    column, row = cos * across + sin * down + (width - 1) / 2, cos * down - sin * across + (height - 1) / 2
    return sample(x - low, column, row, padding="zeros") + low


def _grid(angles: int, shifts: int) -> Tensor:
    """Turns and shifts in shares of the most allowed, without the one that moves nothing, (M, 3).

    Strong ones come first: on MNIST that took 654 inputs for 198 images, mild ones first 59 096.
    """
    turns, steps = (torch.linspace(-1.0, 1.0, count) if count > 1 else torch.zeros(1) for count in (angles, shifts))
    grid = torch.stack(torch.meshgrid(turns, steps, steps, indexing="ij"), -1).flatten(0, 2)
    size = grid.square().sum(1)
    order = size.argsort(descending=True, stable=True)
    return grid[order[size[order] > 0]]


@dataclass(frozen=True, slots=True)
class _Hunt:
    """The search on one target."""

    target: Target
    aim: Aim

    def run(self, x: Tensor, y: Tensor, moves: Tensor) -> Tensor:
        """``moves`` (N, M, 3) tried in turn, twice as many in each round; rows that are fooled leave."""
        best = x.new_zeros(len(x), 3)
        gain, hit = self._judged(self.target(x), y)
        rows = (~hit).nonzero().squeeze(1)
        start, size = 0, 1
        while len(rows) and start < moves.shape[1]:
            block = moves[rows, start : start + size]
            value, fooled = self._tried(x[rows], y[rows], block)
            done = fooled.any(1)
            place = torch.where(done, fooled.int().argmax(1), value.argmax(1))  # the first of equals in both
            each = torch.arange(len(rows), device=x.device)
            chosen, found = value[each, place], block[each, place]
            take = done | (chosen > gain[rows])
            best[rows] = torch.where(take[:, None], found, best[rows])
            gain[rows] = torch.where(take, chosen, gain[rows])
            rows = rows[~done]
            start, size = start + size, 2 * size
        still = (best == 0).all(1)
        return torch.where(still[:, None, None, None], x, self._moved(x, best)).detach()

    def _tried(self, x: Tensor, y: Tensor, moves: Tensor) -> tuple[Tensor, Tensor]:
        """Gain and success of each row with each of its moves, (N, M) both."""

        def ask(row: Tensor, move: Tensor) -> Tensor:
            gain, hit = self._judged(self.target(self._moved(x[row], move)), y[row])
            return torch.stack((gain, hit.to(gain.dtype)), 1)

        rows = torch.arange(len(x), device=x.device).repeat_interleave(moves.shape[1])
        chunks = Chunks(min(MOST_INPUTS, max(1, MOST_NUMBERS // x[0].numel())))
        gain, hit = chunks.map(ask, rows, moves.flatten(0, 1)).unflatten(0, moves.shape[:2]).unbind(2)
        return gain, hit > 0

    def _judged(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """A gain that is not a number is none."""
        gain = self.aim.gain(outputs, y)
        return gain.where(~gain.isnan(), -torch.inf), self.aim.hit(outputs, y)

    def _moved(self, x: Tensor, move: Tensor) -> Tensor:
        low, high = self.target.spec.bounds
        return moved(x, move, low).clamp(low, high)
