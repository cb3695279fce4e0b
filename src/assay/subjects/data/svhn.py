"""Street View House Numbers, cropped digits."""

from pathlib import Path
from typing import Any

import numpy as np

from assay.core.registry import register
from assay.subjects.bench import Splits
from assay.subjects.data import archive

_MD5 = {"train": "e26dedcc434d2e4c54c9b2d4a06d8373", "test": "eb5a983be6a315427106f1b164d9cef3"}


@register("data", paper="Netzer et al. 2011")
def svhn(*, val: int = 5000) -> Splits:
    """Digits of house numbers, 32×32 colour: 68257 train, 5000 val, 26032 test."""
    return archive.named("svhn", tuple("0123456789"), _fetch, val)


def _fetch() -> archive.Arrays:
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for part, md5 in _MD5.items():
        path = archive.fetch(f"http://ufldl.stanford.edu/housenumbers/{part}_32x32.mat", md5)
        arrays[f"x_{part}"], arrays[f"y_{part}"] = parse(path)
    return arrays


def parse(path: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Images (N, 3, 32, 32) and labels; the file's label 10 is the digit 0."""
    from scipy.io import loadmat

    told = loadmat(path)
    return told["X"].transpose(3, 2, 0, 1), (told["y"].ravel() % 10).astype(np.uint8)
