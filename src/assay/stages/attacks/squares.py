"""What the square attack proposes: how large its windows are, and what it writes into them in linf and in l2.

Images are (N, channels, rows · columns) here. A proposal is written into the points themselves, window by window, so
that a step costs as much as its windows are large and never a copy of the batch.
"""

import math
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from assay.core.randomness import Rows

BREAKS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
REFERENCE_QUERIES = 10_000  # the budget that BREAKS were made for


def share_at(step: int, queries: int, first: float, rescale: bool) -> float:
    """The share of the image that a window covers at a step: halved when the step has passed each of ``BREAKS``."""
    place = step * REFERENCE_QUERIES // queries if rescale else step
    return first / 2.0 ** sum(place > end for end in BREAKS)


def image_of(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, rows and columns: a vector is one row, all axes before the last two are channels."""
    if len(shape) < 2:
        return 1, 1, math.prod(shape)
    return math.prod(shape[:-2]), shape[-2], shape[-1]


class Grid:
    """Windows of an image of given rows and columns."""

    def __init__(self, rows: int, columns: int, device: torch.device) -> None:
        self.rows, self.columns, self.device = rows, columns, device
        self._offsets: dict[tuple[int, int], Tensor] = {}

    def sides(self, share: float, least: int = 1, odd: bool = False) -> tuple[int, int]:
        """Rows and columns of a window of that share of the image.

        It is a square where that fits. Paper: square images only. Here: where a side is too short the other one is
        longer, because otherwise windows of flat images and of vectors would stay small from the first step on.
        """
        side = max(round(math.sqrt(share * self.rows * self.columns)), least)
        side += odd and side % 2 == 0
        tall, wide = min(side, self.rows), min(side, self.columns)
        area = round(share * self.rows * self.columns)
        if tall < side:
            wide = min(max(wide, round(area / tall)), self.columns)
        elif wide < side:
            tall = min(max(tall, round(area / wide)), self.rows)
        return tall, wide

    def origins(self, sides: list[tuple[int, int]], place: Tensor) -> Tensor:
        """Uniform numbers (N, steps, 2) as the first cells of windows, one size a step, (N, steps)."""
        room = [(self.rows - tall + 1, self.columns - wide + 1) for tall, wide in sides]
        corner = (place * place.new_tensor(room)).long()
        return corner[..., 0] * self.columns + corner[..., 1]

    def cells(self, origin: Tensor, sides: tuple[int, int]) -> Tensor:
        """Places in the flattened image of the windows with these first cells (N,), (N, 1, cells of the window)."""
        if sides not in self._offsets:
            down, along = (torch.arange(side, device=self.device) for side in sides)
            self._offsets[sides] = (down[:, None] * self.columns + along).flatten()
        return (origin[:, None] + self._offsets[sides])[:, None]


class Proposals(Protocol):
    """What one norm needs: a first point, plans for many steps, and windows written into the best point so far."""

    numbers: int

    def start(self, x: Tensor, rng: Rows) -> Tensor:
        """Where the search begins, (N, C, H·W)."""
        ...

    def plan(self, shares: list[float], draws: Tensor) -> list[Tensor]:
        """What uniform numbers (N, steps, numbers) mean, for all the steps of these shares at once; (N, steps, …)."""
        ...

    def write(self, at: Tensor, x: Tensor, share: float, plan: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Write the proposal of one step into ``at``; the places it touched, their values before and after."""
        ...


class Corners:
    """linf: every entry is at the lower or the upper end of the ball, one end for a window and channel."""

    def __init__(self, channels: int, grid: Grid, eps: float, bounds: tuple[float, float], dtype: torch.dtype) -> None:
        self.channels, self.grid, self.eps, self.bounds, self.dtype = channels, grid, eps, bounds, dtype
        self.numbers = 2 + 2 * channels

    def start(self, x: Tensor, rng: Rows) -> Tensor:
        """Vertical stripes of one column."""
        sign = _signs(rng.uniform((self.channels, 1, self.grid.columns)), self.dtype)
        stripes = sign.expand(-1, -1, self.grid.rows, -1).flatten(2)
        return (x + self.eps * stripes).clamp_(*self.bounds)

    def plan(self, shares: list[float], draws: Tensor) -> list[Tensor]:
        place, own, other = draws.split([2, self.channels, self.channels], 2)
        origin = self.grid.origins([self.grid.sides(share) for share in shares], place)
        move = self.eps * _signs(own, self.dtype)
        turn = other < 0.5
        turn |= ~turn.any(2, keepdim=True)
        return [origin, move[..., None], torch.where(turn, -move, move)[..., None]]

    def write(self, at: Tensor, x: Tensor, share: float, plan: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        origin, move, turned = plan
        cells = self.grid.cells(origin, self.grid.sides(share)).expand(-1, self.channels, -1)
        clean, before = x.gather(2, cells), at.gather(2, cells)
        after = (clean + move).clamp_(*self.bounds)
        # Paper: a proposal may be the point itself. Here, as in the authors' own code: then it is another one, because
        # the query would be lost; with one channel and windows of one pixel that is every second.
        same = (after == before).flatten(1).all(1)
        after = torch.where(same[:, None, None], (clean + turned).clamp_(*self.bounds), after)
        at.scatter_(2, cells, after)
        return cells, before, after


class Bumps:
    """l2: the perturbation of one window moves to another, as a pair of bumps of opposite sign."""

    def __init__(self, channels: int, grid: Grid, eps: float, bounds: tuple[float, float], dtype: torch.dtype) -> None:
        self.channels, self.grid, self.eps, self.bounds, self.dtype = channels, grid, eps, bounds, dtype
        self.numbers = 5 + channels
        self._shapes: dict[tuple[int, int], Tensor] = {}

    def start(self, x: Tensor, rng: Rows) -> Tensor:
        """A grid of five by five bumps, more along a longer side."""
        rows, columns = self.grid.rows, self.grid.columns
        side = max(min(rows, columns) // 5, 1)
        down, along = rows // side, columns // side
        bumps = self._pair((side, side), x).view(2, side, side)
        lying = rng.at(0).uniform((1, down, along)) < 0.5
        sign = _signs(rng.at(1).uniform((self.channels, down, along)), self.dtype)
        tiles = torch.where(lying[..., None, None], bumps[1], bumps[0]) * sign[..., None, None]
        image = tiles.transpose(3, 4).reshape(len(x), self.channels, down * side, along * side)
        above, before = (rows - down * side) // 2, (columns - along * side) // 2
        image = F.pad(image, (before, columns - along * side - before, above, rows - down * side - above)).flatten(2)
        length = _length(image.flatten(1))[:, :, None]
        return (x + image * (self.eps / length)).clamp_(*self.bounds)

    def plan(self, shares: list[float], draws: Tensor) -> list[Tensor]:
        sides = [self._sides(share) for share in shares]
        to, taken = (self.grid.origins(sides, draws[..., i : i + 2]) for i in (0, 2))
        return [to, taken, draws[..., 4, None, None] < 0.5, _signs(draws[..., 5:], self.dtype)[..., None]]

    def write(self, at: Tensor, x: Tensor, share: float, plan: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        left = self.eps**2 - (at - x).flatten(1).square().sum(1)[:, None, None]
        sides = self._sides(share)
        to, taken = (self.grid.cells(origin, sides).expand(-1, self.channels, -1) for origin in plan[:2])
        lying, sign = plan[2:]
        cells = torch.cat([to, taken], 2)
        old, clean = at.gather(2, cells), x.gather(2, cells)
        clean, empty = clean.chunk(2, 2)
        here = old.chunk(2, 2)[0] - clean
        before = here.square().sum(2, keepdim=True)
        at.scatter_(2, to, clean)  # so that what both windows share is not counted twice
        budget = before + (at.gather(2, taken) - empty).square().sum(2, keepdim=True) + left / self.channels
        bumps = self._pair(sides, x)
        # The old perturbation keeps a say, both at length one.
        mixed = here / before.sqrt().clamp_min(1e-12) + torch.where(lying, bumps[1], bumps[0]) * sign
        mixed *= budget.clamp_min(0).sqrt() / _length(mixed).clamp_min(1e-12)
        at.scatter_(2, taken, empty)
        at.scatter_(2, to, (clean + mixed).clamp_(*self.bounds))
        return cells, old, at.gather(2, cells)

    def _sides(self, share: float) -> tuple[int, int]:
        return self.grid.sides(share, least=3, odd=True)

    def _pair(self, sides: tuple[int, int], like: Tensor) -> Tensor:
        """The two bumps one above the other and side by side, flattened, (2, cells)."""
        if sides not in self._shapes:
            tall, wide = sides
            both = torch.stack([_opposed(tall, wide).flatten(), _opposed(wide, tall).T.flatten()])
            self._shapes[sides] = both.to(like)
        return self._shapes[sides]


def _opposed(tall: int, wide: int) -> Tensor:
    """A bump on the upper half and its negative on the lower, of length one; a single row has one bump."""
    whole: Tensor = torch.cat([_bump(tall // 2, wide), -_bump(tall - tall // 2, wide)])
    return whole / whole.square().sum().sqrt()


def _bump(tall: int, wide: int) -> Tensor:
    """Nested squares around the middle, the k-th adding 1 / k² to all it covers."""
    far = torch.maximum((torch.arange(tall) - tall // 2).abs()[:, None], (torch.arange(wide) - wide // 2).abs()[None])
    rings = max(tall, wide) // 2 + 1
    heights = 1.0 / torch.arange(1, rings + 1, dtype=torch.float64).square()
    return heights.flip(0).cumsum(0).flip(0)[far]


def _signs(uniform: Tensor, dtype: torch.dtype) -> Tensor:
    return (uniform < 0.5).to(dtype).mul_(2.0).sub_(1.0)


def _length(values: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(values, dim=-1, keepdim=True)
    return length
