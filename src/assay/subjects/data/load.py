"""Data by text: ``digits/test``, ``mnist/test[:500]``, ``dir:images``, ``file.npz/test``, ``hf:owner/name/test``;
``s3://bucket/file.npz`` and ``dir:s3://bucket/images`` are fetched first.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.core.errors import NothingToTest, UsageError
from assay.core.registry import bind, names
from assay.core.remote import address
from assay.core.remote_files import at_hand, folder_at_hand
from assay.core.specs import canonical, python_file, sliced, step
from assay.core.units import number
from assay.subjects.bench import Data, Splits, held_out, with_validation
from assay.subjects.data.archive import from_npz
from assay.subjects.data.folder import from_folder
from assay.subjects.data.hub_specs import SCHEME
from assay.subjects.data.view import View
from assay.subjects.maite import is_dataset
from assay.subjects.sources.hub_specs import is_hub

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


def load_splits(spec: str, *, size: str = "", like: object = None) -> Splits:
    """All parts of a data set; ``like`` is the model that images are brought to the size of, where it says how."""
    return _splits(spec, _view(spec, size, like))


def _splits(spec: str, view: View | None) -> Splits:
    if spec.startswith("dir:"):
        return from_folder(folder_at_hand(spec.removeprefix("dir:")), view)
    if spec.startswith(SCHEME):
        from assay.subjects.data.hub import load_all

        return load_all(spec, view)
    if spec.endswith(".npz"):
        return from_npz(at_hand(spec))
    if address(spec) is not None:
        raise UsageError(f"{spec} is no .npz file; images in folders by class are dir:{spec}")
    name = sliced(spec)[0].partition("/")[0]
    if name != spec and canonical(name.partition("(")[0]) in map(canonical, names("data")):
        raise UsageError(f"this takes a whole data set, not a part of it: write {name}, not {spec}")
    if spec and Path(spec).is_dir():
        raise UsageError(f"{spec} is a folder: write dir:{spec}")
    splits = bind("data", *(step(spec) if _has_parameters(spec) else (spec, {})))()
    if not isinstance(splits, Splits):
        raise UsageError(f"{spec} gives {type(splits).__name__}; a function of data gives assay's Splits")
    return splits


def _has_parameters(spec: str) -> bool:
    """Whether brackets in a text are those of parameters, and none of a path."""
    return spec.endswith(")") and python_file(spec) is None


def _view(spec: str, size: str, like: object) -> View | None:
    """How images are brought to their size: as ``--size`` says, else as the model's own pipeline does."""
    if not spec.startswith(("dir:", SCHEME)):
        if size:
            raise UsageError(f"--size is for image folders and hf: data, {spec!r} is none")
        return None
    own = None
    if is_hub(like):
        from assay.subjects.sources.hub import view_of

        own = view_of(like)
    return View(parse_size(size), own.channels if own else 0) if size else own


def training_of(data: Data, given: str | Data | None = None, *, size: str = "") -> Data | None:
    """The training data that were given, else the training part of the set that ``data`` are a part of; None where
    nobody knows it. ``size`` is that of image folders.

    >>> training_of(load_data("digits/test[:5]"))
    <digits/train: 1200 cases, 1×8×8 in [0, 1], 10 classes>
    """
    if given is not None:
        if isinstance(given, str) and given.startswith(("dir:", SCHEME)):
            return _load(given, "train", data.view or _view(given, size, None))
        return load_data(given, part="train")
    text = sliced(data.source)[0]
    if text.startswith(SCHEME):
        from assay.subjects.data.hub import part_beside

        return part_beside(text, "train", data.view)
    if not text.startswith("dir:") and not text.endswith(".npz"):
        text = text.rpartition("/")[0]  # less the part
    splits = _splits(text, data.view or _view(text, size, None)) if text else None
    if splits is None or splits.train is None:
        return None
    return replace(splits.train, source=text if text.startswith("dir:") else f"{text}/train")


def splits_to_train(data: Data, given: str | Data | None = None, *, size: str = "") -> Splits | None:
    """The training data of ``training_of`` with validation data: the set's own, else cut from them."""
    learnt = training_of(data, given, size=size)
    if learnt is None:
        return None
    name, _, part = learnt.source.rpartition("/")
    if learnt.source.startswith(SCHEME):
        from assay.subjects.data.hub import part_beside

        own = part_beside(learnt.source, "val", learnt.view)
    else:
        own = load_splits(name, size=size).val if part == "train" and not learnt.source.startswith("dir:") else None
    return with_validation(Splits(learnt.name, train=learnt, val=own))


def load_data(spec: str | Data | Any, *, part: str = "test", size: str = "", like: object = None) -> Data:
    """One part of a data set; ``part`` where the spec names none.

    Images of folders and of the hub are brought to ``size``, else to that of the model that ``like`` names, by the
    resize and crop of its own pipeline, where it says how; those that have the size already stay as they are.

    >>> load_data("digits/test[:5]")
    <digits/test[:5]: 5 cases, 1×8×8 in [0, 1], 10 classes>
    """
    if isinstance(spec, Data):
        return spec
    if isinstance(spec, tuple) and len(spec) == 2:
        from assay.subjects.data.arrays import to_data

        return to_data("given data", *spec)
    if is_dataset(spec):
        from assay.subjects.maite import data_of

        return data_of(spec)
    if not isinstance(spec, str):
        raise UsageError(f"data are a spec such as 'digits/test', a pair (x, y) or Data, got {type(spec).__name__}")
    return _load(spec, part, _view(spec, size, like))


def _load(spec: str, part: str, view: View | None) -> Data:
    text, rows = sliced(spec)
    if text.startswith(SCHEME):
        from assay.subjects.data.hub import load_part

        return load_part(text, rows, part, view)
    name, slash, last = text.rpartition("/")
    asked = bool(slash) and not text.startswith("dir:") and not text.endswith(".npz")
    if asked and Path(text).is_dir():
        raise UsageError(f"{text} is a folder: write dir:{spec}")
    if asked:
        text, part = name, last
    splits = _splits(text, view)
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
