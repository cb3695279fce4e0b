"""Data by text: ``digits/test``, ``mnist/test[:500]``, ``dir:images``, ``file.npz/test``."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.core.errors import NothingToTest, UsageError
from assay.core.registry import bind, names
from assay.core.specs import canonical, sliced
from assay.core.units import number
from assay.subjects.bench import Data, Splits, held_out, with_validation
from assay.subjects.data.archive import from_npz
from assay.subjects.data.folder import from_folder

MAX_SIDE = 4096


def parse_size(text: str) -> tuple[int, int]:
    """Height and width of ``32`` or ``32x48``."""
    match = re.fullmatch(r"(\d+)(?:[x×](\d+))?", text)
    if match is None or not int(match[1]) or match[2] == "0":
        raise UsageError(f"a size is written as 32 or 32x48, got {text!r}")
    height, width = int(match[1]), int(match[2] or match[1])
    if max(height, width) > MAX_SIDE:
        raise UsageError(f"a size may be {MAX_SIDE} at most, got {text!r}")
    return height, width


def load_splits(spec: str, *, size: str = "") -> Splits:
    """All parts of a data set."""
    if spec.startswith("dir:"):
        return from_folder(Path(spec.removeprefix("dir:")), parse_size(size) if size else None)
    if size:
        raise UsageError(f"--size is for image folders, {spec!r} is none")
    if spec.endswith(".npz"):
        return from_npz(Path(spec))
    name = sliced(spec)[0].partition("/")[0]
    if name != spec and canonical(name) in map(canonical, names("data")):
        raise UsageError(f"this takes a whole data set, not a part of it: write {name}, not {spec}")
    if spec and Path(spec).is_dir():
        raise UsageError(f"{spec} is a folder: write dir:{spec}")
    splits = bind("data", spec, {})()
    if not isinstance(splits, Splits):
        raise UsageError(f"{spec} gives {type(splits).__name__}; a function of data gives assay's Splits")
    return splits


def training_of(data: Data, given: str | Data | None = None, *, size: str = "") -> Data | None:
    """The training data that were given, else the training part of the set that ``data`` are a part of; None where
    nobody knows it. ``size`` is that of image folders.

    >>> training_of(load_data("digits/test[:5]"))
    <digits/train: 1200 cases, 1×8×8 in [0, 1], 10 classes>
    """
    if given is not None:
        folder = isinstance(given, str) and given.startswith("dir:")
        return load_data(given, part="train", size=size if folder else "")
    text = sliced(data.source)[0]
    if not text.startswith("dir:") and not text.endswith(".npz"):
        text = text.rpartition("/")[0]  # less the part
    splits = load_splits(text, size=size) if text else None
    if splits is None or splits.train is None:
        return None
    return replace(splits.train, source=text if text.startswith("dir:") else f"{text}/train")


def splits_to_train(data: Data, given: str | Data | None = None, *, size: str = "") -> Splits | None:
    """The training data of ``training_of`` with validation data: the set's own, else cut from them."""
    learnt = training_of(data, given, size=size)
    if learnt is None:
        return None
    name, _, part = learnt.source.rpartition("/")
    own = load_splits(name, size=size).val if part == "train" and not learnt.source.startswith("dir:") else None
    return with_validation(Splits(learnt.name, train=learnt, val=own))


def load_data(spec: str | Data | Any, *, part: str = "test", size: str = "") -> Data:
    """One part of a data set; ``part`` where the spec names none.

    >>> load_data("digits/test[:5]")
    <digits/test[:5]: 5 cases, 1×8×8 in [0, 1], 10 classes>
    """
    if isinstance(spec, Data):
        return spec
    if isinstance(spec, tuple) and len(spec) == 2:
        from assay.subjects.data.arrays import to_data

        return to_data("given data", *spec)
    if not isinstance(spec, str):
        raise UsageError(f"data are a spec such as 'digits/test', a pair (x, y) or Data, got {type(spec).__name__}")
    text, rows = sliced(spec)
    name, slash, last = text.rpartition("/")
    asked = bool(slash) and not text.startswith("dir:") and not text.endswith(".npz")
    if asked and Path(text).is_dir():
        raise UsageError(f"{text} is a folder: write dir:{spec}")
    if asked:
        text, part = name, last
    splits = load_splits(text, size=size)
    if splits.whole is not None and not asked:
        data = splits.whole
    elif match := re.fullmatch(r"held-out\(([\d.]+)\)", part):
        data = held_out(splits, number(match[1], "the share to hold out"))[1]
    else:
        data = splits.part(part)
    # What was typed, with the part it came to mean.
    again = text if splits.whole is not None or text.startswith("dir:") else f"{text}/{part}"
    data = replace(data, source=again)
    if rows != slice(None):
        data = data[rows]
    if not len(data):
        raise NothingToTest(f"{spec} holds no case")
    return data
