"""Pictures of failures on sheets: the tiles of many cards in one PNG, so that thousands are a few files."""

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.images import to_bytes, unit_range
from assay.outputs.report.shown import Shown

BUDGET = 100_000_000  # pixels of all sheets; where it is short, large pictures are shown smaller
SHEET = 512 * 1024  # pixels of one sheet
CARDS = 256  # on one sheet at most
GUTTER = 1  # pixels around a tile that repeat its edge: browsers round, and would show a line of the next tile
FACTORS = tuple(digit * 10**power for power in range(5) for digit in (1, 2, 5))  # by which changes are made visible


@dataclass(frozen=True, slots=True)
class Tiles:
    """Where the pictures of a card are: its sheet, the first tile there, which ones it has, and how much the change of
    the case and of its shrunk form was made larger.
    """

    sheet: int
    first: int
    names: tuple[str, ...]
    factor: int
    factor_shrunk: int


@dataclass(frozen=True, slots=True)
class Sheet:
    """One PNG of tiles, ``across`` of them in a row."""

    content: bytes
    across: int
    down: int
    cards: tuple[Tiles, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """The size of a tile, and of the picture before it was made smaller; None where inputs are no images."""

    width: int
    height: int
    was: tuple[int, int]

    @property
    def smaller(self) -> bool:
        return (self.width, self.height) != self.was

    def at(self, place: int, across: int) -> tuple[int, int]:
        """Where the tile of that place begins on a sheet with so many across."""
        return self.size(place % across, 0)[0] + GUTTER, self.size(0, place // across)[1] + GUTTER

    def size(self, across: int, down: int) -> tuple[int, int]:
        """The pixels of a sheet with so many tiles."""
        return across * (self.width + 2 * GUTTER), down * (self.height + 2 * GUTTER)


def layout_of(shape: tuple[int, ...], cards: int) -> Layout | None:
    """How large tiles are, so that those of all cards fit into the budget."""
    if len(shape) != 3 or 0 in shape:
        return None
    height, width = shape[1:]
    share = math.sqrt(BUDGET / (max(cards, 1) * 4 * height * width))
    scale = min(1.0, share, math.sqrt(SHEET / (5 * height * width)))
    return Layout(max(1, int(width * scale)), max(1, int(height * scale)), (width, height))


def sheets(failures: Shown, order: Tensor, layout: Layout, cards: int = CARDS) -> Iterator[Sheet]:
    """The pictures of the failures in that order, a sheet at a time."""
    each = max(1, min(cards, SHEET // (5 * layout.width * layout.height)))
    place = _places(failures)
    for number, rows in enumerate(order.split(each)):
        yield _sheet(failures, rows, layout, number, place)


def _places(failures: Shown) -> dict[int, int]:
    """The place of each shrunk form, by the row of its failure."""
    if failures.smaller is None:
        return {}
    return {row: place for place, row in enumerate(failures.smaller.info["row"].tolist())}


def _sheet(failures: Shown, rows: Tensor, layout: Layout, number: int, place: dict[int, int]) -> Sheet:
    cases = failures.cases[rows]
    case, seed = (_seen(x, failures.bounds) for x in (cases.x, cases.info["seed_x"]))
    change, factor = _change(case, seed)
    small = [place.get(row, -1) for row in rows.tolist()]
    left, left_change, left_factor = _left(failures, small, case, seed)
    seeded = cases.info["seeded"].tolist()
    sizes = [_fitted(x, layout) for x in (seed, case, change, left, left_change)]
    tiles: list[Tensor] = []
    cards = []
    for i, known in enumerate(seeded):
        names: tuple[str, ...] = ("seed", "case", "difference") if known else ("case",)
        names += ("shrunk", "shrunk difference") if small[i] >= 0 else ()
        which = {"seed": 0, "case": 1, "difference": 2, "shrunk": 3, "shrunk difference": 4}
        cards.append(Tiles(number, len(tiles), names, int(factor[i]), int(left_factor[i])))
        tiles += [sizes[which[name]][i] for name in names]
    across = max(1, min(len(tiles), math.isqrt(max(1, len(tiles) * layout.height // layout.width)) or 1))
    down = -(-len(tiles) // across)
    return Sheet(_png(torch.stack(tiles), across, down), across, down, tuple(cards))


def _left(failures: Shown, small: list[int], case: Tensor, seed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The shrunk forms, the cases themselves where there is none, and what they change."""
    left = case.clone()
    have = [i for i, at in enumerate(small) if at >= 0]
    if have and failures.smaller is not None:
        left[have] = _seen(failures.smaller.x[[small[i] for i in have]], failures.bounds)
    return left, *_change(left, seed)


def _seen(x: Tensor, bounds: tuple[float, float]) -> Tensor:
    """Inputs as pictures (N, 1 or 3, H, W) in [0, 1]; other numbers of channels are shown by their mean."""
    x = unit_range(x.float(), bounds).nan_to_num(0.0, 1.0, 0.0).clamp(0, 1)
    return x if x.shape[1] in (1, 3) else x.mean(1, keepdim=True)


def _change(x: Tensor, seed: Tensor) -> tuple[Tensor, Tensor]:
    """What was changed, grey where nothing was, as large as a round factor makes it, and that factor, (N,)."""
    delta = x - seed
    reach = delta.flatten(1).abs().amax(1)
    steps = torch.tensor(FACTORS, dtype=torch.float32)
    fits = (steps * reach[:, None] <= 1.0 + 1e-6).sum(1).clamp_min(1) - 1
    factor = steps[fits]
    return (0.5 + delta * factor.view(-1, 1, 1, 1) / 2).clamp(0, 1), factor


def _fitted(x: Tensor, layout: Layout) -> Tensor:
    """Pictures in the size of tiles, as bytes."""
    if layout.smaller:
        x = torch.nn.functional.interpolate(x, (layout.height, layout.width), mode="area")
    return to_bytes(x)


def _png(tiles: Tensor, across: int, down: int) -> bytes:
    """Tiles (T, C, H, W) side by side as one PNG."""
    from PIL import Image

    tiles = torch.nn.functional.pad(tiles.float(), (GUTTER,) * 4, mode="replicate").to(torch.uint8)
    count, channels, height, width = tiles.shape
    blank = tiles.new_zeros(across * down - count, channels, height, width)
    grid = torch.cat([tiles, blank]).view(down, across, channels, height, width)
    array = grid.permute(0, 3, 1, 4, 2).reshape(down * height, across * width, channels).numpy()
    out = io.BytesIO()
    # Noise does not pack: a higher level takes three times as long and saves a hundredth.
    Image.fromarray(array[:, :, 0] if channels == 1 else array).save(out, format="PNG", compress_level=3)
    return out.getvalue()
