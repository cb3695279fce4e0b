"""How an image becomes the input of a model: resized by ``--size``, or as the model's own pipeline does it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class View:
    """The size that images are brought to, (height, width), and how.

    ``channels`` is 1, 3, or 0 for those the image has. ``take`` gives the pixels (C, H, W) of an image of another size;
    one that has the size already is left as it is, so that an image that was written down is read back the same.
    """

    size: tuple[int, int] | None = None
    channels: int = 0
    take: Callable[[Any], Pixels] | None = None

    def __call__(self, image: Any) -> Pixels:
        """The pixels (C, H, W) of a PIL image."""
        grey = self.channels == 1 or (not self.channels and image.mode in ("1", "L", "LA"))
        still = image.convert("L" if grey else "RGB")
        if self.size is None or still.size == (self.size[1], self.size[0]):
            return _pixels(still)
        if self.take is not None:
            return self.take(still)
        from PIL import Image

        return _pixels(still.resize((self.size[1], self.size[0]), Image.Resampling.BILINEAR))


def _pixels(image: Any) -> Pixels:
    pixels: Pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def whole(pixels: Any) -> Pixels:
    """Pixels as another library gives them, (C, H, W) in 0..255, as whole numbers."""
    given = np.asarray(pixels)
    return given if given.dtype == np.uint8 else np.clip(np.rint(given), 0, 255).astype(np.uint8)
