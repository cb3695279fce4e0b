"""CIFAR-10."""

import tarfile
from pathlib import Path

import numpy as np

from assay.core.errors import UsageError
from assay.core.registry import register
from assay.subjects.bench import Splits
from assay.subjects.data import archive

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_RECORD = 1 + 3 * 32 * 32  # label, then red, green and blue planes


@register("data", paper="Krizhevsky 2009")
def cifar10(*, val: int = 5000) -> Splits:
    """Colour pictures of ten things, 32×32: 45000 train, 5000 val, 10000 test."""
    return archive.named(
        "cifar10",
        CLASSES,
        # The binary archive: the Python one is a pickle, and loading data must not run code.
        lambda: parse(
            archive.fetch("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530")
        ),
        val,
    )


def parse(path: Path) -> archive.Arrays:
    """The arrays of the binary archive, read member by member and never unpacked to disk."""
    records = {}
    with tarfile.open(path) as tar:
        for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
            member = tar.extractfile(f"cifar-10-batches-bin/{name}.bin")
            if member is None:
                raise UsageError(f"{path.name} has no member {name}.bin")
            records[name] = np.frombuffer(member.read(), np.uint8).reshape(-1, _RECORD)
    train = np.concatenate([rows for name, rows in records.items() if name != "test_batch"])
    return {
        f"{key}_{part}": rows[:, 1:].reshape(-1, 3, 32, 32) if key == "x" else rows[:, 0]
        for part, rows in (("train", train), ("test", records["test_batch"]))
        for key in ("x", "y")
    }
