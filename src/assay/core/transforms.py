"""The image transforms of DeepHunter (ISSTA 2019), one for each image of a batch, with parameters of its own.

What is drawn is apart from what is done: the same draw moves an image and the reference it is compared with.
"""

import itertools
from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from assay.core.corruptions import KINDS as CORRUPTIONS
from assay.core.errors import UsageError
from assay.core.randomness import Rows
from assay.core.shapes import column
from assay.core.smoothing import BLURS, LEAST

# Public code: its lists hold the parameter that changes nothing, too. Here: they do not, because such a mutant
# costs a call. Public code: one number moves an image along both axes. Here: one for each, so not on one diagonal only.
PARAMETERS: dict[str, tuple[tuple[float, float], ...]] = {
    "translation": tuple((i, j) for i in range(-3, 3) for j in range(-3, 3) if i or j),  # pixels
    "scale": tuple((i / 10, 0) for i in (7, 8, 9, 11)),
    "shear": tuple((i / 10, 0) for i in range(-6, 6) if i),
    "rotation": tuple((i, 0) for i in range(-50, 50) if i),  # degrees, against the clock
    "contrast": tuple((i / 10, 0) for i in (5, 6, 7, 8, 9, 11, 12)),  # a factor
    "brightness": tuple((i, 0) for i in range(-20, 20) if i),  # of 255
    "blur": tuple((i, 0) for i in range(len(BLURS))),
    "noise": tuple((i, 0) for i in range(3)),  # Gaussian, salt and pepper, speckle
    "pixels": tuple((i, 0) for i in range(1, 10)),  # so many values
}
KINDS = tuple(PARAMETERS)
AFFINE = KINDS[:4]

# Public code: Gaussian noise of variance 0.1 in grey levels, which changes next to nothing (and of the range, no image
# would pass the rule), and speckle of deviation 1, both cast to bytes without clipping; salt is written as 1 of 255.
# Here: deviations drawn up to a tenth of the range, clipped, and salt is white.
MOST_NOISE = 0.1
SALT = 0.002  # of the values, and as many of pepper; at least one each

_SIZES = tuple(len(values) for values in PARAMETERS.values())
_STARTS = tuple(itertools.accumulate(_SIZES, initial=0))[:-1]
_TABLE = torch.tensor([value for values in PARAMETERS.values() for value in values])
_KIND_OF = torch.tensor([place for place, size in enumerate(_SIZES) for _ in range(size)])


@dataclass(frozen=True, slots=True)
class Drawn:
    """A transform for each row: ``entry`` (N,) is a place in all lists of parameters, one after the other."""

    entry: Tensor
    rng: Rows

    def __getitem__(self, rows: slice | Tensor) -> "Drawn":
        return Drawn(self.entry[rows], self.rng[rows])

    def kind(self) -> Tensor:
        """The place of each row's kind in ``KINDS``, (N,)."""
        return _KIND_OF.to(self.entry.device)[self.entry]

    def is_one_of(self, kinds: tuple[str, ...]) -> Tensor:
        """Which rows have a transform among these kinds, (N,) bool."""
        told = torch.tensor([kind in kinds for kind in KINDS])[_KIND_OF]
        return told.to(self.entry.device)[self.entry]


def draw(rng: Rows, kinds: tuple[str, ...]) -> Drawn:
    """One of the kinds for each row, all equally likely, and then one of its parameters."""
    places = [KINDS.index(kind) for kind in kinds]
    device = rng.key.device
    starts, sizes = (torch.tensor([line[p] for p in places], device=device) for line in (_STARTS, _SIZES))
    kind = rng.at(0).integers((), len(kinds))
    within = (rng.at(1).uniform(()) * sizes[kind]).long()
    return Drawn(starts[kind] + within.minimum(sizes[kind] - 1), rng.at(2))


def transformed(x: Tensor, drawn: Drawn, bounds: tuple[float, float]) -> Tensor:
    """The images (N, C, H, W) after their transforms, within the bounds; values that are left alone stay to the bit."""
    check_images(tuple(x.shape[1:]))
    if not len(x):
        return x.clone()
    low, high = bounds
    before = (x - low) / (high - low)
    after = before.clone()
    entry = drawn.entry.cpu()
    for kind, which, rows in _groups(entry):
        here = rows.to(x.device)
        after[here] = _applied(kind, which, before[here], entry[rows], drawn.rng[here])
    after.clamp_(0.0, 1.0)
    return torch.where(after == before, x, low + (high - low) * after).clamp_(low, high)


def check_images(shape: tuple[int, ...]) -> None:
    """Refuse what is no image, or one too small for a window to be mirrored at its border."""
    if len(shape) != 3 or min(shape[1:]) < LEAST:
        raise UsageError(
            f"these transforms need images (channels, height, width) of {LEAST} or more pixels a side, not inputs of "
            f"shape {shape}; the mutators noise and jitter take any"
        )


def _groups(entry: Tensor) -> list[tuple[str, int, Tensor]]:
    """Rows that are worked in one go: the affine ones together, blurs and noises each by its own."""
    found: list[tuple[str, int, Tensor]] = []
    kind = _KIND_OF[entry]
    affine = kind < len(AFFINE)
    if bool(affine.any()):
        found.append(("affine", 0, affine.nonzero().squeeze(1)))
    for place in kind[~affine].unique().tolist():
        name, mine = KINDS[place], (kind == place).nonzero().squeeze(1)
        if name in ("blur", "noise"):
            which = entry[mine] - _STARTS[place]
            found += [(name, w, mine[which == w]) for w in which.unique().tolist()]
        else:
            found.append((name, 0, mine))
    return found


def _applied(kind: str, which: int, x: Tensor, entry: Tensor, rng: Rows) -> Tensor:
    """One group of images in [0, 1] transformed; ``entry`` lies on the host."""
    if kind == "affine":
        return _moved(x, matrices(entry, x.shape[2], x.shape[3]))
    value = _TABLE[entry, 0].to(x)
    if kind == "contrast":
        return x * column(value, x)
    if kind == "brightness":
        return x + column(value, x) / 255
    if kind == "blur":
        return BLURS[which](x)
    return _noise(x, rng, which) if kind == "noise" else _pixels(x, value, rng)


def _moved(x: Tensor, where: Tensor) -> Tensor:
    """Bilinear, so that no two images come further apart; what comes in from outside is black."""
    from kornia.geometry.transform import warp_affine

    moved: Tensor = warp_affine(x, where.to(x), (x.shape[2], x.shape[3]))
    return moved


def matrices(entry: Tensor, height: int, width: int) -> Tensor:
    """Where the affine transforms move a point (across, down, 1) of the image, (N, 2, 3) float64, about the centre."""
    kind, (one, other) = _KIND_OF[entry], _TABLE[entry].double().unbind(1)

    def of(name: str, value: Tensor, otherwise: float) -> Tensor:
        return torch.where(kind == KINDS.index(name), value, otherwise)

    # Public code: shears about the corner, which pushes most of a small image out of its frame by the way. Here: about
    # the centre, because a mutant is to keep its label.
    angle, size, slant = torch.deg2rad(of("rotation", one, 0.0)), of("scale", one, 1.0), of("shear", -one, 0.0)
    cos, sin = size * angle.cos(), angle.sin()
    across, down = (width - 1) / 2, (height - 1) / 2
    right, below = (of("translation", value, 0.0) for value in (one, other))
    top = torch.stack([cos, sin + slant, across - cos * across - (sin + slant) * down + right], 1)
    bottom = torch.stack([-sin, cos, down + sin * across - cos * down + below], 1)
    return torch.stack([top, bottom], 1)


def _noise(x: Tensor, rng: Rows, which: int) -> Tensor:
    if which == 1:
        return _salt_and_pepper(x, rng)
    deviation = column(rng.at(0).uniform((), 0.0, MOST_NOISE), x).to(x.dtype)
    noise: Tensor = CORRUPTIONS["gaussian_noise" if which == 0 else "speckle_noise"].apply(x, rng.at(1), deviation)
    return noise


def _salt_and_pepper(x: Tensor, rng: Rows) -> Tensor:
    flat = x.flatten(1).clone()
    count = ceil(SALT * flat.shape[1])
    for value in (1.0, 0.0):
        flat.scatter_(1, rng.at(int(value)).integers((count,), flat.shape[1]), value)
    return flat.view_as(x)


def _pixels(x: Tensor, count: Tensor, rng: Rows) -> Tensor:
    """The first ``count`` (N,) of nine places get random values; one after the other, so that none is written twice."""
    flat = x.flatten(1).clone()
    places, values = rng.at(0).integers((9,), flat.shape[1]), rng.at(1).uniform((9,)).to(x.dtype)
    for i in range(9):
        here = places[:, i : i + 1]
        flat.scatter_(1, here, torch.where(count[:, None] > i, values[:, i : i + 1], flat.gather(1, here)))
    return flat.view_as(x)
