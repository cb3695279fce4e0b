"""Named data sets on disk: ``NAME.npz`` in ``$ASSAY_DATA`` or the cache, fetched once from the canonical source."""

import logging
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.errors import UsageError
from assay.core.files import whole_text, zip_members
from assay.core.specs import canonical
from assay.subjects.bench import Data, Splits, cut
from assay.subjects.data.arrays import to_data

log = logging.getLogger("assay")

Arrays = Mapping[str, np.ndarray[Any, Any]]
MOST_PACKED, MOST_TIMES = 256 << 20, 100  # bytes from which on an archive may be no more times larger inside
VALIDATION = 5000  # cases cut from the official training part, seed 0


def cache_folder() -> Path:
    """Where fetched data are kept."""
    import pooch

    return Path(pooch.os_cache("assay")) / "data"


def fetch(url: str, md5: str) -> Path:
    """A file of the canonical source, checked against its published checksum."""
    import pooch

    try:
        found = pooch.retrieve(url, known_hash=f"md5:{md5}", path=cache_folder() / "downloads", progressbar=False)
    except Exception as error:
        raise UsageError(
            f"cannot fetch {url} ({type(error).__name__}); without network, put the data set as NAME.npz "
            "(x_train, y_train, x_test, y_test) into a folder and name it in ASSAY_DATA"
        ) from error
    return Path(found)


def named(name: str, classes: tuple[str, ...], make: Callable[[], Arrays], val: int = VALIDATION) -> Splits:
    """The data set of that name: official test part, official training part less ``val`` cases to validate with.

    Of a copy with little in it the usual ones are a tenth. Fewer of them are some of the usual ones.
    """
    if val < 1:
        raise UsageError(f"val is how many training cases are kept to validate with, at least 1; got {val}")
    file = f"{canonical(name)}.npz"
    given = os.environ.get("ASSAY_DATA")
    for folder in [*([Path(given)] if given else []), cache_folder()]:
        if (folder / file).is_file():
            arrays: Arrays = read_npz(folder / file)
            missing = [key for key in ("x_train", "y_train", "x_test", "y_test") if key not in arrays]
            if missing:
                raise UsageError(f"{folder / file} lacks {', '.join(missing)}; it is not a copy of {name}")
            break
    else:
        log.warning("fetching %s", name)
        arrays = make()
        path = cache_folder() / file
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.npz")
        np.savez(temporary, **dict(arrays))  # type: ignore[arg-type]  # its stub reads ** as its one flag
        temporary.replace(path)
    whole = to_data(name, _images(arrays["x_train"]), arrays["y_train"], classes, known=True)
    kept, told = val, f"{name}(val={val})"
    if val == VALIDATION:
        kept, told = min(val, max(1, len(whole) // 10)), name
    elif val >= len(whole):
        raise UsageError(f"{name} has {len(whole)} training cases, and val={val} leaves none to train on")
    train, validation = cut(whole, (f"{told}/train", f"{told}/val"), kept)
    test = to_data(f"{name}/test", _images(arrays["x_test"]), arrays["y_test"], classes, known=True)
    return Splits(told, train, validation, test)


def _images(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """(N, C, H, W): files of named sets are (N, H, W) or channels-last, what we fetch is channels-first."""
    if x.ndim == 3:
        return x[:, None]
    return x.transpose(0, 3, 1, 2) if x.ndim == 4 and x.shape[3] in (1, 3) and x.shape[1] not in (1, 3) else x


def read_npz(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of an ``.npz`` file; pickled objects are refused."""
    if not path.is_file():
        raise UsageError(f"no such file: {path}")
    if not zipfile.is_zipfile(path):
        raise UsageError(f"{path} is not an .npz file; save arrays with numpy.savez(path, x=…, y=…)")
    _refuse_bomb(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except Exception as error:  # a damaged archive raises anything from zlib.error to MemoryError
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise UsageError(f"{path} is not a readable .npz file: {reason}; make it anew with numpy.savez") from error


def _refuse_bomb(path: Path) -> None:
    """Refuse an archive that would fill the memory from next to nothing, before anything is unpacked."""
    inside = sum(member.file_size for member in zip_members(path))
    times = inside / max(path.stat().st_size, 1)
    if inside > MOST_PACKED and times > MOST_TIMES:
        raise UsageError(
            f"{path} is not a readable .npz file: it would take {inside >> 20} MB, {times:.0f} times its size, as no "
            "data do; make it anew with numpy.savez, which packs nothing"
        )


def _class_names(names: np.ndarray[Any, Any], path: Path) -> tuple[str, ...]:
    if names.ndim != 1 or names.dtype.kind not in "USiu":
        raise UsageError(f"'classes' in {path} must be a list of names, got shape {names.shape} of {names.dtype}")
    return tuple(map(whole_text, map(str, names.tolist())))


def from_npz(path: Path) -> Splits:
    """Parts of a user's ``.npz``: ``x_train, y_train, x_test, y_test`` (``x_val`` too), or plain ``x, y``."""
    arrays = read_npz(path)
    classes = _class_names(arrays["classes"], path) if "classes" in arrays else ()
    name = path.name
    if "x" in arrays:
        return Splits(name, whole=to_data(name, arrays["x"], arrays.get("y"), classes))
    parts: dict[str, Data] = {}
    if not classes:
        labels = [arrays[f"y_{p}"] for p in ("train", "val", "test") if f"y_{p}" in arrays]
        if labels and all(part.ndim == 1 and part.dtype.kind in "ui" and len(part) for part in labels):
            classes = tuple(str(i) for i in range(max(int(part.max()) for part in labels) + 1))
    for part in ("train", "val", "test"):
        if f"x_{part}" in arrays:
            parts[part] = to_data(f"{name}/{part}", arrays[f"x_{part}"], arrays.get(f"y_{part}"), classes)
    if not parts:
        raise UsageError(f"{path} has the arrays {', '.join(arrays) or 'none'}; expected x and y, or x_train, x_test …")
    return Splits(name, **parts)
