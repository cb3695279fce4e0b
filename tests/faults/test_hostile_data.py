"""Data of every wrong form, through eval and fuzz: what can mean one thing only is converted with a notice, the rest
refused with the first rows that are wrong; nothing is rescaled in silence.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.core.errors import NOTHING_TO_TEST, PASSED, USAGE
from assay.subjects.data.load import load_data
from bad_images import pixels, saved
from commands import Nursery, Result, tree

pytestmark = pytest.mark.slow

Array = np.ndarray[Any, Any]


def digits() -> tuple[Array, Array]:
    data = load_data("digits/test[:40]")
    return data.cases.x.numpy(), data.cases.y.numpy()


def evaluated(home: Nursery, model: str, data: str) -> Result:
    return home.run("eval", model, "--data", data, "--suite", "fgsm", "--eps", "0.1")


def fuzzed(home: Nursery, model: str, data: str, name: str = "r") -> Result:
    return home.run("fuzz", model, "--data", data, "--eps", "0.2", "--cases", "300", "--run", name)


def changed(rows: list[int], value: float, dtype: Any = np.float32) -> Callable[[Array], Array]:
    def change(x: Array) -> Array:
        x = x.astype(dtype)
        x[rows, 0, 3, 4] = value
        return x

    return change


CONVERTED: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array], str]] = {
    "uint8": (lambda x: np.rint(x * 255).astype(np.uint8), lambda y: y, "divided by 255"),
    "float64": (lambda x: x.astype(np.float64), lambda y: y, "float64 inputs converted to float32"),
    "float16": (lambda x: x.astype(np.float16), lambda y: y, "float16 inputs converted to float32"),
    "channels last": (lambda x: x.transpose(0, 2, 3, 1), lambda y: y, "read as channels-first"),
    "one-hot": (lambda x: x, lambda y: np.eye(10)[y], "one-hot labels"),
    "float labels": (lambda x: x, lambda y: y.astype(np.float64), "floating-point labels"),
    "big-endian": (lambda x: x.astype(">f4"), lambda y: y.astype(">i4"), ""),
    "no channel": (lambda x: x[:, 0], lambda y: y, ""),
    "unlabelled": (lambda x: x, lambda y: np.where(np.arange(len(y)) < 3, -1, y), ""),
}


@pytest.mark.parametrize("form", CONVERTED)
def test_what_means_one_thing_is_converted_with_a_notice(home: Nursery, digits_model: str, form: str) -> None:
    x, y = digits()
    of_x, of_y, notice = CONVERTED[form]
    np.savez("plain.npz", x=x, y=y)
    np.savez("data.npz", x=of_x(x), y=of_y(y), classes=np.array(list("0123456789")))
    done = evaluated(home, digits_model, "data.npz").ended(PASSED)
    assert notice in done.err
    fuzzed(home, digits_model, "data.npz").ended(PASSED, notice)
    if form in ("float64", "channels last", "one-hot", "float labels", "big-endian", "no channel"):
        plain = evaluated(home, digits_model, "plain.npz").ended(PASSED)
        assert _numbers(done) == _numbers(plain) != []


def _numbers(done: Result) -> list[str]:
    """The rows of the table without its last column, the seconds."""
    return [line.rpartition("│")[0].rpartition("│")[0] for line in done.out.splitlines() if "%" in line]


def same(x: Array) -> Array:
    return x


REFUSED: dict[str, tuple[Callable[[Array], Any], Callable[[Array], Any], tuple[str, ...]]] = {
    "nan": (changed([7, 9], np.nan), same, ("NaN or infinity", "2 cases", "7, 9")),
    "infinity": (changed([3], np.inf), same, ("NaN or infinity", "rows: 3")),
    "nan in float64": (changed([3], np.nan, np.float64), same, ("NaN or infinity", "rows: 3")),
    "beyond float32": (changed([5], 1e300, np.float64), same, ("rows: 5",)),
    "minus one to one": (lambda x: x * 2 - 1, same, ("[-1, 1]", "expected [0, 1]", "first rows", "--mean")),
    "0 to 255 as float": (lambda x: x * 255, same, ("[0, 255]", "expected [0, 1]", "uint8")),
    "standardised": (lambda x: (x - 0.3) / 0.3, same, ("expected [0, 1]", "nothing is rescaled silently")),
    "one wide value": (changed([11], 1.5), same, ("expected [0, 1]", "rows: 11")),
    "int64 pixels": (lambda x: (x * 255).astype(np.int64), same, ("int64", "uint8")),
    "text inputs": (lambda x: x.astype(str), same, ("type", "uint8")),
    "complex": (lambda x: x.astype(np.complex64), same, ("complex64", "uint8")),
    "true and false": (lambda x: x > 0.5, same, ("bool", "uint8")),
    "two channels": (lambda x: np.repeat(x, 2, 1), same, ("shape", "channels")),
    "three channels": (lambda x: np.repeat(x, 3, 1), same, ("(3, 8, 8)", "(1, 8, 8)")),
    "another size": (lambda x: np.repeat(x, 2, 3), same, ("(1, 8, 16)", "(1, 8, 8)")),
    "one axis": (lambda x: x.reshape(-1), same, ("shape", "batch")),
    "five axes": (lambda x: x[:, :, None], same, ("5 axes",)),
    "either way": (lambda x: np.zeros((4, 3, 8, 3), np.float32), lambda y: y[:4], ("channels first or last",)),
    "label 10": (same, lambda y: np.where(np.arange(len(y)) == 6, 10, y), ("0..9", "10", "rows: 6")),
    "label -2": (same, lambda y: np.where(np.arange(len(y)) == 6, -2, y), ("-2", "rows 6", "-1")),
    "label 10**12": (same, lambda y: np.where(np.arange(len(y)) == 6, 10**12, y), ("1000000000000",)),
    "label nan": (same, lambda y: np.where(np.arange(len(y)) == 6, np.nan, y), ("labels", "type float64")),
    "label 0.5": (same, lambda y: y + 0.5, ("labels", "type float64")),
    "text labels": (same, lambda y: y.astype(str), ("labels", "class numbers")),
    "two ones": (same, lambda y: np.eye(10)[y] + np.eye(10)[0], ("not one-hot",)),
    "fewer labels": (same, lambda y: y[:-1], ("40 inputs but 39 labels",)),
    "three axes of labels": (same, lambda y: y[:, None, None], ("labels", "shape")),
    "objects": (lambda x: x.astype(object), same, ("data.npz", "numpy.savez")),
}


@pytest.mark.parametrize("form", REFUSED)
def test_all_else_is_refused_with_the_first_rows(home: Nursery, digits_model: str, form: str, tmp_path: Path) -> None:
    x, y = digits()
    of_x, of_y, words = REFUSED[form]
    np.savez("data.npz", x=of_x(x), y=of_y(y), classes=np.array(list("0123456789")))
    before = tree(tmp_path)
    evaluated(home, digits_model, "data.npz").ended(USAGE, *words)
    fuzzed(home, digits_model, "data.npz").ended(USAGE, *words)
    assert {name: content for name, content in tree(tmp_path).items() if not name.startswith("cache")} == before


@pytest.mark.parametrize("form", ["no cases", "no arrays", "not an archive", "cut off", "flipped", "only labels"])
def test_files_that_hold_no_data_are_refused(home: Nursery, digits_model: str, form: str) -> None:
    x, y = digits()
    path = Path("data.npz")
    np.savez(path, x=x, y=y)
    raw = bytearray(path.read_bytes())
    if form == "no cases":
        np.savez(path, x=x[:0], y=y[:0])
    elif form in ("no arrays", "only labels"):
        np.savez(path, labels=y) if form == "no arrays" else np.savez(path, y=y)
    elif form == "not an archive":
        path.write_bytes(b"x,y\n1,2\n")
    elif form == "cut off":
        path.write_bytes(raw[: len(raw) // 2])
    else:
        raw[len(raw) // 3] ^= 0xFF
        path.write_bytes(raw)
    code = NOTHING_TO_TEST if form == "no cases" else USAGE
    evaluated(home, digits_model, "data.npz").ended(code, "data.npz")
    fuzzed(home, digits_model, "data.npz").ended(code, "data.npz")
    assert not Path("runs").exists()


def test_folders_of_the_wrong_form_are_refused(home: Nursery, digits_model: str) -> None:
    for label in "0123456789":
        (Path("images") / label).mkdir(parents=True)
        (Path("images") / label / "x.png").write_bytes(saved(pixels(int(label)).convert("L"), "PNG"))
    evaluated(home, digits_model, "dir:images").ended(PASSED)
    (Path("images") / "3" / "x.png").write_bytes(saved(pixels(3), "PNG"))
    evaluated(home, digits_model, "dir:images").ended(USAGE, "(3, 8, 8)", "(1, 8, 8)")  # colour for a net of grey
    (Path("images") / "3" / "x.png").write_bytes(saved(pixels(3, side=9).convert("L"), "PNG"))
    evaluated(home, digits_model, "dir:images").ended(USAGE, "differ in size", "--size")
    fuzzed(home, digits_model, "dir:images").ended(USAGE, "differ in size", "--size")
