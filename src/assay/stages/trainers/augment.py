"""Random flips, shifts, turns and scales of training images, each case with parameters of its own."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.errors import UsageError
from assay.core.specs import did_you_mean, split, value

_DEFAULT = {"flip": 0.5, "shift": 0.1, "rotate": 10.0, "scale": 0.1}


@dataclass(frozen=True, slots=True)
class Augmentation:
    """How far images are moved: chance of a mirror flip, shift as a share of the side, degrees, relative scale."""

    flip: float = 0.0
    shift: float = 0.0
    rotate: float = 0.0
    scale: float = 0.0

    @staticmethod
    def parse(text: str) -> "Augmentation":
        """Read ``flip, shift=0.1, rotate=10``; a bare name takes its usual amount.

        >>> Augmentation.parse("flip, shift=0.125")
        Augmentation(flip=0.5, shift=0.125, rotate=0.0, scale=0.0)
        """
        amounts = {}
        for part in split(text):
            name, sign, amount = (piece.strip() for piece in part.partition("="))
            if name not in _DEFAULT:
                raise UsageError(f"unknown augmentation {name!r}; {did_you_mean(name, _DEFAULT)}")
            number = value(amount) if sign else _DEFAULT[name]
            if not isinstance(number, (int, float)) or number < 0:
                raise UsageError(f"augmentation {name} needs a number that is not negative, got {amount!r}")
            amounts[name] = float(number)
        return Augmentation(**amounts)

    @property
    def moves(self) -> bool:
        """Whether images are shifted, turned or scaled."""
        return any((self.shift, self.rotate, self.scale))

    def __bool__(self) -> bool:
        return bool(self.flip) or self.moves

    def idle(self, shape: Sequence[int]) -> bool:
        """Whether inputs of that shape stay as they are: what is no image, and small ones shifted by less than half a
        pixel.

        >>> Augmentation(shift=0.036).idle((1, 8, 8)), Augmentation(shift=0.036).idle((1, 28, 28))
        (True, False)
        """
        if len(shape) != 3:
            return True
        return not (self.flip or self.rotate or self.scale) and self.shift * max(shape[1:]) < 0.5

    def apply(self, x: Tensor, rng: torch.Generator, among: tuple[int, int] | None = None) -> Tensor:
        """The images (N, C, H, W) moved at random; what comes in from outside is black. What is no image stays.

        ``among`` says that they are the rows from the first number on of a batch of the second: they are moved as if
        the whole batch were here.
        """
        if not self or not len(x) or self.idle(x.shape[1:]):
            return x
        first, n = among or (0, len(x))
        own = slice(first, first + len(x))
        if self.flip:
            mirrored = torch.rand(n, 1, 1, 1, generator=rng, device=x.device)[own] < self.flip
            x = torch.where(mirrored, x.flip(-1), x)
        if not self.moves:
            return x
        draw = torch.rand(4, n, generator=rng, device=x.device)[:, own] * 2 - 1
        right, down = (draw[2] * self.shift * x.shape[3]).round(), (draw[3] * self.shift * x.shape[2]).round()
        if not self.rotate and not self.scale:
            return self._shifted(x, right.long(), down.long())
        from kornia.geometry.transform import warp_affine

        moved: Tensor = warp_affine(x, self._matrices(x, draw, right, down), (x.shape[2], x.shape[3]))
        return moved

    def _shifted(self, x: Tensor, right: Tensor, down: Tensor) -> Tensor:
        """The images moved by whole pixels. Warping them takes an inverse for each, and a GPU is waited for by it."""
        most = math.ceil(self.shift * max(x.shape[2:]))
        around = torch.nn.functional.pad(x, (most, most, most, most))
        windows = around.unfold(2, x.shape[2], 1).unfold(3, x.shape[3], 1)
        return windows[torch.arange(len(x), device=x.device), :, most - down, most - right]

    def _matrices(self, x: Tensor, draw: Tensor, right: Tensor, down: Tensor) -> Tensor:
        """(N, 2, 3): rotation and scale about the centre, then a shift by whole pixels."""
        height, width = x.shape[2], x.shape[3]
        angle = draw[0] * self.rotate * torch.pi / 180
        size = 1 + draw[1] * self.scale
        cos, sin = size * torch.cos(angle), size * torch.sin(angle)
        middle_x, middle_y = (width - 1) / 2, (height - 1) / 2
        rows = [
            torch.stack([cos, sin, middle_x - cos * middle_x - sin * middle_y + right], 1),
            torch.stack([-sin, cos, middle_y + sin * middle_x - cos * middle_y + down], 1),
        ]
        return torch.stack(rows, 1)
