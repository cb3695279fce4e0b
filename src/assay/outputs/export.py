"""The cases of a run for other programs: one ``.npz``, one ``.parquet``, or a folder of images."""

import csv
import json
import logging
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from assay.core import store
from assay.core.cases import Cases
from assay.core.errors import NothingToTest, UsageError
from assay.core.files import safe_name, storage_error
from assay.core.ids import case_ids
from assay.core.images import png
from assay.core.specs import did_you_mean
from assay.core.store import Store
from assay.engines.found import load_failures
from assay.engines.old_failures import warn_of_damage
from assay.engines.select import load_selection
from assay.engines.shrinkings import load_shrunk
from assay.engines.stored import class_names, failing, stored_cases

log = logging.getLogger("assay")

SUFFIXES = {"npz": ".npz", "parquet": ".parquet", "images": ""}
FORMULA = tuple("=+-@")  # how a cell begins that is computed
INDEX = ("id", "true", "predicted", "linf", "l2", "ssim", "seed", "file")


class _Chosen(NamedTuple):
    """The cases to write, the names of the classes, and texts for a column each."""

    cases: Cases
    classes: tuple[str, ...]
    texts: dict[str, list[str]]

    @staticmethod
    def named(cases: Cases, classes: tuple[str, ...], **more: list[str]) -> "_Chosen":
        return _Chosen(cases, classes, {"id": case_ids(cases), **more})


class Exported(NamedTuple):
    """What was written where."""

    path: Path
    cases: int


def export(
    run: str | Path,
    *,
    to: str = "npz",
    out: str | Path | None = None,
    selected: int | None = None,
    shrunk: int | None = None,
) -> Exported:
    """Write a run's failures, one of its selections or shrinkings, to a new file or folder; nothing is overwritten.

    An ``.npz`` loads as data again, and so does a folder of images, in 8 bits a channel, as ``dir:PATH``. Shrunk cases
    have a column ``of``: the id of the failure that each was made of.
    """
    if to not in SUFFIXES:
        raise UsageError(f"unknown format {to!r}; {did_you_mean(to, SUFFIXES)}")
    if selected is not None and shrunk is not None:
        raise UsageError("a selection or a shrinking is written, not both; assay shrink --selected shrinks a selection")
    folder = store.read(store.find_run(run))
    parts = (("selected", selected), ("shrunk", shrunk))
    some = "".join(f"-{name}-{number:03d}" for name, number in parts if number is not None)
    default = f"{folder.path.resolve().name}{some}{SUFFIXES[to] or '-images'}"
    path = check_place(out or default, to, folder.path)
    warn_of_damage(folder)
    chosen = _chosen(folder, selected, shrunk)
    cases = chosen.cases
    given = cases.info.get("labelled")
    if given is not None and not bool(given.all()):
        log.warning(
            "%d of %d cases have a label that a model gave to their clean parent; the column labelled says which",
            int((~given).sum()),
            len(cases),
        )
    # Written beside its place and moved there whole: a reader never meets half of it.
    try:
        with tempfile.TemporaryDirectory(prefix=".assay-", dir=path.parent) as beside:
            made = Path(beside) / path.name
            _WRITERS[to](made, chosen)
            made.rename(path)
    except OSError as error:
        raise storage_error(error, path, 0) from error
    return Exported(path, len(cases))


def _chosen(run: Store, selected: int | None, shrunk: int | None) -> _Chosen:
    if shrunk is not None:
        failures = load_failures(run)
        made = load_shrunk(run, shrunk, failures)
        if not len(made):
            raise NothingToTest(f"no case of shrinking {shrunk} of run {run.name} fails")
        return _Chosen.named(made.cases, made.classes, of=case_ids(failures[made.cases.info["row"]]))
    if selected is not None:
        picked = load_selection(run, selected)
        return _Chosen.named(picked.cases, picked.classes)
    every = stored_cases(run)
    cases = failing(every)
    if not len(cases):
        raise NothingToTest(f"run {run.name} holds no failures")
    return _Chosen.named(cases, class_names(run, every))


def format_of(out: str) -> str:
    """The format that the name of a file asks for."""
    for name, suffix in SUFFIXES.items():
        if suffix and out.endswith(suffix):
            return name
    raise UsageError(f"--out takes a file ending in .npz or .parquet, got {out!r}")


def check_place(out: str | Path, to: str, run: Path) -> Path:
    """The path, if it is free, named as the format asks, and not inside the run, where unlisted files are set aside."""
    path = Path(out)
    if path.suffix != SUFFIXES[to] and SUFFIXES[to]:
        raise UsageError(f"a file of format {to} ends in {SUFFIXES[to]}, got {str(path)!r}")
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} exists and is not overwritten; give another --out")
    if not path.parent.is_dir():
        raise UsageError(f"no such folder: {path.parent}")
    if path.resolve().is_relative_to(run.resolve()):
        raise UsageError(f"{path} lies in the run folder, which is Assay's own; give an --out elsewhere")
    return path


def _columns(cases: Cases) -> dict[str, Tensor]:
    """The columns with one value a case; ``seed`` counts within a shard only, ``origin`` says which seed it was."""
    plain = {name: column for name, column in cases.info.items() if column.dim() == 1 and name != "seed"}
    others = cases.info.get("others_pred")
    if others is None:
        return plain
    names = ["others_pred"] if others.shape[1] == 1 else [f"others_pred_{i}" for i in range(1, others.shape[1] + 1)]
    return plain | {name: others[:, i] for i, name in enumerate(names)}


def _npz(path: Path, chosen: _Chosen) -> None:
    cases = chosen.cases
    arrays = {"x": cases.x, "y": cases.y, "origin": cases.origin, **_columns(cases)}
    if "seed_x" in cases.info:
        arrays["seed_x"] = cases.info["seed_x"]
    told: dict[str, Any] = {name: tensor.numpy() for name, tensor in arrays.items()}
    told |= {name: np.array(column) for name, column in chosen.texts.items()} | {"classes": np.array(chosen.classes)}
    np.savez(path, **told)


def _parquet(path: Path, chosen: _Chosen) -> None:
    cases = chosen.cases
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UsageError("writing .parquet needs pyarrow: pip install 'assay[parquet]'") from None

    def flat(x: Tensor) -> Any:
        rows = x.flatten(1)
        return pa.FixedSizeListArray.from_arrays(pa.array(rows.flatten().numpy()), rows.shape[1])

    columns = {name: pa.array(column) for name, column in chosen.texts.items()} | {"x": flat(cases.x)}
    columns |= {"seed_x": flat(cases.info["seed_x"])} if "seed_x" in cases.info else {}
    plain = {"y": cases.y, "origin": cases.origin, **_columns(cases)}
    columns |= {name: pa.array(column.numpy()) for name, column in plain.items()}
    facts = json.dumps({"shape": list(cases.x.shape[1:]), "classes": list(chosen.classes)})
    pq.write_table(pa.table(columns).replace_schema_metadata({"assay": facts}), path)


def _images(path: Path, chosen: _Chosen) -> None:
    cases, classes = chosen.cases, chosen.classes
    if cases.x.dim() != 4 or cases.x.shape[1] not in (1, 3):
        raise UsageError(f"cases of shape {tuple(cases.x.shape[1:])} are no images; export them with --to npz")
    if "eight_bit" in cases.info:
        sure = int(cases.info["eight_bit"].sum())
        log.info("%d of %d cases were checked to fail as images of 8 bits%s", sure, len(cases), _rest(sure, len(cases)))
    elif bool(((cases.x * 255).round() / 255 - cases.x).abs().max() > 1e-4):
        log.info("PNG rounds to 8 bits a channel, after which a case may fail no longer; --to npz keeps it exactly")
    folders = _folders(classes)
    path.mkdir()
    files = []
    for x, y, name in zip(cases.x, cases.y.tolist(), chosen.texts["id"], strict=True):
        file = f"{folders[y]}/{name}.png"
        (path / folders[y]).mkdir(exist_ok=True)
        if not (path / file).exists():  # equal cases are one picture
            (path / file).write_bytes(png(x))
        files.append(file)
    with (path / "index.csv").open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows(_index(chosen, files))


def _rest(sure: int, count: int) -> str:
    return "" if sure == count else "; the others may fail no longer, --to npz keeps them exactly"


def _index(chosen: _Chosen, files: list[str]) -> Iterable[tuple[Any, ...]]:
    """The lines of the table of images."""
    cases, classes = chosen.cases, chosen.classes

    def column(name: str) -> list[Any]:
        return cases.info[name].tolist() if name in cases.info else [""] * len(cases)

    names = [*map(csv_text, classes), "unlabelled"]  # a label of -1 reads the last one
    true, predicted = ([names[y] for y in part.tolist()] for part in (cases.y, cases.info.get("pred", cases.y)))
    sizes = (column(name) for name in ("linf", "l2", "ssim"))
    more = {name: column for name, column in chosen.texts.items() if name != "id"}
    yield (*INDEX, *more)
    rest = (*sizes, cases.origin.tolist(), files, *more.values())
    yield from zip(chosen.texts["id"], true, predicted, *rest, strict=True)


def csv_text(text: str) -> str:
    """A text as a cell of a table: spreadsheets run what begins like a formula, and no quotes keep them from it.

    >>> csv_text("=cmd")
    "'=cmd"
    """
    shown = "".join(c if c.isprintable() or c == "\n" else "\\x" + format(ord(c), "02x") for c in text)
    return f"'{shown}" if shown.lstrip().startswith(FORMULA) else shown


def _folders(classes: tuple[str, ...]) -> list[str]:
    """A folder for each class: its name, or, where one is no plain file name, its number and what is plain of it."""
    names = [*classes, "unlabelled"]
    if len({name.lower() for name in names}) == len(names) and all(map(_is_plain, names)):
        return names
    return [f"{i}-{re.sub(r'[^A-Za-z0-9]+', '_', name)[:60]}" for i, name in enumerate(names)]


def _is_plain(name: str) -> bool:
    try:
        return bool(safe_name(name))
    except UsageError:
        return False


_WRITERS = {"npz": _npz, "parquet": _parquet, "images": _images}
