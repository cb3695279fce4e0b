"""Data sets of the Hugging Face hub, or written to a folder by its library: images with a class each."""

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from assay.core import trust
from assay.core.cases import Cases
from assay.core.errors import NothingToTest, UsageError
from assay.core.extras import needed
from assay.core.specs import did_you_mean
from assay.subjects import hub as site
from assay.subjects.bench import Data, Splits
from assay.subjects.data.arrays import to_data
from assay.subjects.data.folder import stacked
from assay.subjects.data.hub_columns import Columns, columns_of
from assay.subjects.data.hub_specs import HubData, parse
from assay.subjects.data.view import Pixels, View

log = logging.getLogger("assay")

# What a part is called there; ours come first.
_NAMES = {"train": ("train",), "val": ("val", "validation", "valid", "dev"), "test": ("test",)}
_SMALL = 512 << 20  # bytes to fetch up to which a set is fetched whole rather than read as a stream
_SHARE = 0.5  # of the machine's memory that data may take


def load_part(text: str, rows: slice, part: str, view: View | None) -> Data:
    """One part, or those rows of it; ``part`` where the text names none."""
    spec = pinned(parse(text))
    have = _split_names(spec)
    alone = len(have) == 1 and not spec.split and _is_saved(spec)  # a folder with one table, whatever it is called
    wanted = have[0] if alone else spec.split or part
    name = _found(wanted, have)
    if name is None:
        raise UsageError(f"{spec.whole.title} has no part {wanted!r}; {did_you_mean(wanted, have)}")
    return _read(replace(spec, split=name), rows, view or View())


def load_all(text: str, view: View | None) -> Splits:
    """The parts of a data set that are for training, validation and test."""
    spec = pinned(parse(text))
    if spec.split:
        raise UsageError(f"this takes a whole data set, not a part of it: write {spec.whole}, not {text}")
    have = _split_names(spec)
    parts = {part: name for part in _NAMES if (name := _found(part, have)) is not None}
    if not parts:
        raise UsageError(f"{spec.title} has no part train, validation or test; it has {', '.join(have)}")
    read = {part: _read(replace(spec, split=name), slice(None), view or View()) for part, name in parts.items()}
    return Splits(str(spec), **read)


def part_beside(source: str, part: str, view: View | None) -> Data | None:
    """Another part of the set that a text names a part of; None where there is none, or it is too large."""
    spec = pinned(parse(source)).whole
    name = _found(part, _split_names(spec))
    if name is None:
        return None
    try:
        return _read(replace(spec, split=name), slice(None), view or View())
    except TooLarge as error:
        log.warning("%s", error)
        return None


def pinned(spec: HubData) -> HubData:
    """The same at the commit that its revision means."""
    if spec.folder is None:
        trust.check(str(spec))
    return spec if spec.is_pinned else replace(spec, revision=site.commit_of(spec.name, spec.revision, site.DATASET))


class TooLarge(UsageError):
    """More than memory holds."""


def _found(part: str, have: list[str]) -> str | None:
    known = next((names for names in _NAMES.values() if part in names), ())
    return part if part in have else next((name for name in known if name in have), None)


def _datasets(spec: HubData) -> Any:
    library = needed("datasets", "hub", str(spec))
    library.config.HF_UPDATE_DOWNLOAD_COUNTS = False  # which asks a machine that no spec names
    return library


def _is_saved(spec: HubData) -> bool:
    """Whether the folder was written by save_to_disk."""
    return spec.folder is not None and any(
        (spec.folder / name).is_file() for name in ("dataset_dict.json", "state.json")
    )


def _split_names(spec: HubData) -> list[str]:
    """The parts that the set has."""
    library = _datasets(spec)
    if spec.folder is not None and _is_saved(spec):
        told = _saved(spec)
        return list(told) if isinstance(told, dict) else [str(told.split or "train")]
    with site.asked(spec.name, spec.revision, site.DATASET):
        try:
            return list(map(str, library.get_dataset_split_names(*_place(spec), spec.config or None, **_at(spec))))
        except ValueError:  # perhaps it is several sets, and which one is meant was not said
            configs = list(map(str, library.get_dataset_config_names(*_place(spec), **_at(spec))))
            if spec.config in configs or len(configs) < 2:
                raise
            some = f"{', '.join(configs[:8])}{' …' * (len(configs) > 8)}"
            raise UsageError(
                f"{spec.name} is several sets ({some}), and {spec.config or 'none'} is named; "
                f"name one: hf:{spec.name}/{configs[0]}/{spec.split or 'test'}"
            ) from None


def _place(spec: HubData) -> tuple[str]:
    # The whole path: "parquet" and the like are kinds of files to the library.
    return (str(spec.folder.resolve()) if spec.folder is not None else spec.name,)


def _at(spec: HubData) -> dict[str, str]:
    return {"revision": spec.revision} if spec.revision else {}


def _saved(spec: HubData) -> Any:
    library = _datasets(spec)
    with site.asked(spec.name, kind=site.DATASET):
        return library.load_from_disk(str(spec.folder))


def _rows_of(spec: HubData, rows: slice) -> tuple[Any, Iterator[tuple[int, Mapping[str, Any]]], Columns]:
    """The set, its chosen rows with their numbers, images not yet decoded, and which columns they are."""
    library = _datasets(spec)
    if _is_saved(spec):
        told = _saved(spec)
        table = told[spec.split] if isinstance(told, dict) else told
    else:
        stream = _is_to_stream(spec, rows)
        with site.asked(spec.name, spec.revision, site.DATASET), _without_bars(library):
            table = library.load_dataset(
                *_place(spec), spec.config or None, split=spec.split, streaming=stream, **_at(spec)
            )
        if stream:
            log.info("%s: read as a stream, up to row %d", spec.title, rows.stop)
            columns = columns_of(table, spec)
            return table, _streamed(columns.bare(table, library), rows, spec), columns
    columns = columns_of(table, spec)
    chosen = range(len(table))[rows]
    table = columns.bare(table, library)
    return table, ((i, table[i]) for i in chosen), columns


def _is_to_stream(spec: HubData, rows: slice) -> bool:
    """Whether to read only the rows that are asked for: where they are the first ones, and the set is large."""
    if spec.folder is not None or rows.stop is None or rows.stop < 0 or (rows.start or 0) < 0 or site.is_offline():
        return False
    with site.asked(spec.name, spec.revision, site.DATASET):
        info = _datasets(spec).load_dataset_builder(spec.name, spec.config or None, **_at(spec)).info
    return info.download_size is None or info.download_size > _SMALL


def _streamed(table: Any, rows: slice, spec: HubData) -> Iterator[tuple[int, Mapping[str, Any]]]:
    step, start = rows.step or 1, rows.start or 0
    with site.asked(spec.name, spec.revision, site.DATASET):
        for number, row in enumerate(table.take(rows.stop)):
            if number >= start and (number - start) % step == 0:
                yield number, row


def _read(spec: HubData, rows: slice, view: View) -> Data:
    """The cases of those rows; images that cannot be read are left out and told."""
    _, chosen, columns = _rows_of(spec, rows)
    images: list[Pixels] = []
    labels, numbers, bad = [], [], []
    limit = _SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    taken = 0
    for number, row in chosen:
        image, reason = columns.image(row, view)
        if image is None:
            bad.append(f"row {number}: {reason}")
            continue
        taken += 5 * image.nbytes  # as bytes, and then as float32
        if taken > limit:
            raise TooLarge(
                f"{spec.title} is more than half of this machine's memory ({len(images)} images so far); take some of "
                f"it: {spec}[:{max(len(images) // 2, 1)}]"
            )
        images.append(image)
        labels.append(columns.label_in(row))
        numbers.append(number)
    if bad:
        shown = "\n  ".join(bad[:20]) + (f"\n  … and {len(bad) - 20} more" if len(bad) > 20 else "")
        log.warning("%s: %d images could not be read and were left out:\n  %s", spec.title, len(bad), shown)
    if not images:
        raise NothingToTest(f"{spec} holds no image that can be read" if bad else f"{spec} holds no case")
    classes, places = columns.classes(labels)
    data = to_data(spec.title, stacked(images, spec.title), places, classes, known=True)
    cut = _cut(rows)
    return replace(
        data,
        name=f"{spec}{cut}",  # runs and tables name the commit
        cases=Cases(data.cases.x, data.cases.y, torch.tensor(numbers)),
        source=f"{spec}{cut}",
        view=view,
    )


def _cut(rows: slice) -> str:
    """The slice as it is written."""
    if rows == slice(None):
        return ""
    bounds = (rows.start, rows.stop, rows.step)[: 2 + (rows.step is not None)]
    return "[" + ":".join("" if bound is None else str(bound) for bound in bounds) + "]"


class _without_bars:  # noqa: N801  it is used like a function
    """Without the bars of datasets, which stand between the lines of our own progress."""

    def __init__(self, library: Any) -> None:
        self.library, self.shown = library, library.is_progress_bar_enabled()

    def __enter__(self) -> None:
        self.library.disable_progress_bars()

    def __exit__(self, *_: object) -> None:
        if self.shown:
            self.library.enable_progress_bars()


def is_local(path: str, spec: HubData) -> bool:
    """Whether a path that a row names is one that the library itself put there."""
    library = _datasets(spec)
    roots = [library.config.HF_CACHE_HOME, library.config.HF_DATASETS_CACHE]
    roots += [] if spec.folder is None else [str(spec.folder)]
    if not Path(path).is_file():  # a pipe would be waited for
        return False
    return any(Path(path).resolve().is_relative_to(Path(root).resolve()) for root in roots)
