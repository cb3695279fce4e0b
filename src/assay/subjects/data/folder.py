"""Image folders: one sub-folder a class."""

import logging
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from assay.core.errors import NothingToTest, UsageError
from assay.core.files import whole_text
from assay.subjects.bench import PARTS, Data, Splits
from assay.subjects.data.arrays import to_data
from assay.subjects.data.view import View

log = logging.getLogger("assay")

FORMATS = ("PNG", "JPEG", "WEBP", "BMP")
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
MAX_PIXELS = 50_000_000  # refused before a pixel is decoded
MUCH, TIMES = 256 << 20, 100  # bytes of pixels from which on they may be no more than so many times those on disk
_DEEP = ("I", "F")  # 16-bit and floating-point modes: how to scale them down would be a guess


def from_folder(root: Path, size: tuple[int, int] | View | None = None) -> Splits:
    """The parts of a folder: its sub-folders ``train``, ``val`` and ``test``, or itself as one set.

    ``size`` is the height and width that images are brought to, or a view that says how too.
    """
    view = size if isinstance(size, View) else View(size)
    if not root.is_dir():
        raise UsageError(f"no such folder: {root}")
    names = _class_names(root)
    if set(names) <= set(PARTS):  # a class may be called "train" too, but hardly every class
        classes = sorted({c for part in PARTS if (root / part).is_dir() for c in _class_names(root / part)})
        parts = {p: _read(root / p, classes, view) for p in PARTS if (root / p).is_dir()}
        if len({d.spec.shape for d in parts.values()}) > 1:
            shapes = ", ".join(f"{p} {d.spec.shape}" for p, d in parts.items())
            raise UsageError(f"the parts of {root} differ in shape ({shapes}); give --size HxW, or one colour mode")
        return Splits(str(root), **parts)
    return Splits(str(root), whole=_read(root, names, view))


def _class_names(root: Path) -> list[str]:
    names = sorted(p.name for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not names:
        raise NothingToTest(f"{root} has no sub-folders; expected one folder of images per class")
    return names


def _read(root: Path, classes: list[str], view: View) -> Data:
    log.info("%s: classes %s", root, ", ".join(f"{i}={name!r}" for i, name in enumerate(classes)))
    images: list[np.ndarray[Any, Any]] = []
    labels: list[int] = []
    bad: list[str] = []
    inside, outside = 0, 0
    for path, label in _files(root, classes):
        image, reason = _decode(path, view)
        inside += 0 if image is None else image.nbytes
        outside += path.stat().st_size if image is not None else 0
        if inside > max(MUCH, TIMES * outside):
            raise UsageError(
                f"{root}: images of {outside} bytes on disk are {inside} bytes of pixels by now, over {TIMES} times "
                "as much; that fills the memory. Give --size HxW, or leave them out"
            )
        if image is None:
            bad.append(f"{str(path.relative_to(root))!r}: {reason}")  # quoted: a name may hold a line break
        else:
            images.append(image)
            labels.append(label)
    _tell_of_links(root, classes)
    loose = sum(p.is_file() and p.suffix.lower() in SUFFIXES for p in root.iterdir())
    if loose:
        log.warning("%s: %d images lie in no class folder and were left out", root, loose)
    if bad:
        shown = "\n  ".join(bad[:20]) + (f"\n  … and {len(bad) - 20} more" if len(bad) > 20 else "")
        log.warning("%s: %d files could not be read and were left out:\n  %s", root, len(bad), shown)
    if not images:
        raise (
            UsageError(f"{root}: all {len(bad)} files are unreadable; images are PNG, JPEG, WebP or BMP of 8 bits")
            if bad
            else NothingToTest(f"{root}: no images")
        )
    pixels = stacked(images, str(root))
    found = to_data(str(root), pixels, np.array(labels), tuple(map(whole_text, classes)), known=True)
    return replace(found, view=view)


def _tell_of_links(root: Path, classes: list[str]) -> None:
    """Say which files lie elsewhere: links are followed, for folders are often made of them, but not in silence."""
    inside, places = root.resolve(), [root / name for name in classes]
    found = (path for place in places for path in (place, *place.rglob("*")) if path.is_symlink())
    out = [repr(str(path.relative_to(root))) for path in found if not path.resolve().is_relative_to(inside)]
    if out:
        more = f" and {len(out) - 5} more" if len(out) > 5 else ""
        log.warning(
            "%s: links lead out of the folder, and what lies there is read: %s%s", root, ", ".join(out[:5]), more
        )


def _files(root: Path, classes: list[str]) -> Iterator[tuple[Path, int]]:
    for label, name in enumerate(classes):
        folder = root / name
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if not path.is_dir() and not path.name.startswith("."):
                yield path, label


def _decode(path: Path, view: View) -> tuple[np.ndarray[Any, Any] | None, str]:
    if not path.is_file():
        return None, "no regular file"
    if path.suffix.lower() not in SUFFIXES:
        return None, f"not one of {', '.join(SUFFIXES)}"
    return decoded(path, view)


def decoded(file: Path | IO[bytes], view: View) -> tuple[np.ndarray[Any, Any] | None, str]:
    """Pixels (C, H, W) uint8, or the reason why not."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with warnings.catch_warnings(), Image.open(file, formats=FORMATS) as image:
            warnings.simplefilter("ignore")  # the limit below is ours and stricter
            if image.width * image.height > MAX_PIXELS:
                return None, f"{image.width}×{image.height} is over the limit of {MAX_PIXELS} pixels"
            if getattr(image, "n_frames", 1) > 1 and image.format != "MPO":  # many phones write two-frame JPEGs
                return None, "animated"
            if image.mode.startswith(_DEEP) or ";16" in str(image.tile):
                return None, "more than 8 bits a channel; convert to 8 bit"
            pixels = view(ImageOps.exif_transpose(image))
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        return None, str(error).split("\n")[0][:100] or type(error).__name__
    return pixels, ""


def stacked(images: list[np.ndarray[Any, Any]], root: str) -> np.ndarray[Any, Any]:
    """The images as one array; refused where they differ in size."""
    sizes = {image.shape[1:] for image in images}
    if len(sizes) > 1:
        some = ", ".join(f"{h}x{w}" for h, w in sorted(sizes)[:4])
        raise UsageError(f"{root}: images differ in size ({some}{', …' if len(sizes) > 4 else ''}); give --size HxW")
    if len({image.shape[0] for image in images}) > 1:
        log.warning("%s: grey images among colour ones were given three equal channels", root)
        images = [np.repeat(image, 3, 0) if len(image) == 1 else image for image in images]
    return np.stack(images)
