"""The idx files of MNIST and its kin."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.errors import UsageError
from assay.subjects.data.archive import Arrays, fetch

_STEMS = {
    "x_train": "train-images-idx3",
    "y_train": "train-labels-idx1",
    "x_test": "t10k-images-idx3",
    "y_test": "t10k-labels-idx1",
}


def fetch_all(base: str, md5: dict[str, str]) -> Arrays:
    """The four arrays of such a set; ``md5`` by array name."""
    return {key: parse(fetch(f"{base}{stem}-ubyte.gz", md5[key])) for key, stem in _STEMS.items()}


def parse(path: Path) -> np.ndarray[Any, Any]:
    """The array of a gzipped idx file of bytes."""
    raw = gzip.decompress(path.read_bytes())
    if raw[:3] != b"\x00\x00\x08":
        raise UsageError(f"{path.name} is not an idx file of bytes")
    shape = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(raw[3])]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)
