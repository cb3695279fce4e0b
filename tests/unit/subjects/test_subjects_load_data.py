"""Data by text."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from assay.core.errors import NothingToTest, UsageError
from assay.subjects.data.load import load_data, load_splits, parse_size


@pytest.mark.parametrize(
    ("spec", "rows"),
    [
        ("digits/test", slice(None)),
        ("digits", slice(None)),
        ("digits/test[:5]", slice(5)),
        ("digits/test[350:]", slice(350, None)),
        ("digits/test[10:20]", slice(10, 20)),
        ("digits/test[::7]", slice(None, None, 7)),
        ("digits/test[-3:]", slice(-3, None)),
        ("digits/test[ : 4 ]", slice(4)),
        ("digits/test[:9999]", slice(None)),
    ],
)
def test_slices_of_a_part(spec: str, rows: slice) -> None:
    whole = load_splits("digits").part("test").cases
    data = load_data(spec)
    assert torch.equal(data.cases.x, whole.x[rows])
    assert torch.equal(data.cases.y, whole.y[rows])
    assert torch.equal(data.cases.origin, torch.arange(360)[rows])


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("digits/val[:5]", "digits/val[:5]"),
        ("digits/val[5:]", "digits/val[5:]"),
        ("digits/val[1:9:2]", "digits/val[1:9:2]"),
        ("digits/val", "digits/val"),
    ],
)
def test_the_name_tells_the_slice(spec: str, name: str) -> None:
    assert load_data(spec).name == name


def test_the_part_that_is_not_named_is_the_one_asked_for() -> None:
    assert load_data("digits").name == "digits/test"
    assert load_data("digits", part="train").name == "digits/train"
    assert load_data("digits/val", part="train").name == "digits/val"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("digitz/test", "unknown data 'digitz'; did you mean 'digits'?"),
        ("fashion/test", "did you mean 'fashion-mnist'?"),
        ("digits/tst", "unknown part 'tst' of digits; did you mean 'test'?"),
        ("digits/zzz", "unknown part 'zzz' of digits; known: test, train, val"),
        ("qqqqqqqq", "known: cifar10, digits, fashion-mnist, mnist, svhn"),
        ("", "unknown data ''"),
        ("digits[5]", "a slice is written as [:500], [100:] or [::2], got [5]"),
        ("digits[a:b]", "got [a:b]"),
        ("digits[1:2:3:4]", "got [1:2:3:4]"),
        ("digits[::-1]", "a slice steps forward, got [::-1]"),
        ("digits[::0]", "a slice steps forward, got [::0]"),
        ("none.npz", "no such file: none.npz"),
        ("none.npz/test", "no such file: none.npz"),
        ("dir:none", "no such folder: none"),
    ],
)
def test_wrong_specs_name_the_right_one(spec: str, words: str) -> None:
    with pytest.raises(UsageError) as told:
        load_data(spec)
    assert words in str(told.value)


@pytest.mark.parametrize("spec", ["digits/test[360:]", "digits/test[:0]", "digits[5:5]"])
def test_an_empty_slice_is_nothing_to_test(spec: str) -> None:
    with pytest.raises(NothingToTest) as told:
        load_data(spec)
    assert str(told.value) == f"{spec} holds no case"


def test_hyphen_and_underscore_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.zeros((5001, 2, 5), np.uint8)
    y = np.zeros(5001, np.uint8)
    np.savez(tmp_path / "fashion_mnist.npz", x_train=x, y_train=y, x_test=x[:2], y_test=y[:2])
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path))
    assert load_data("fashion_mnist").fingerprint() == load_data("fashion-mnist").fingerprint()


def test_npz_by_path_with_part_and_slice(tmp_path: Path) -> None:
    x = np.arange(60, dtype=np.uint8).reshape(6, 2, 5)
    np.savez(tmp_path / "d.npz", x_train=x, y_train=np.arange(6), x_test=x[:3], y_test=np.arange(3))
    assert len(load_data(f"{tmp_path}/d.npz")) == 3
    assert len(load_data("d.npz/train")) == 6
    assert load_data("./d.npz/train[4:]").cases.origin.tolist() == [4, 5]
    with pytest.raises(UsageError, match=r"d\.npz has no part 'val'; it has train, test"):
        load_data("d.npz/val")


def test_a_pair_of_arrays() -> None:
    data = load_data((np.zeros((3, 5), np.float32), [0, 1, 2]))
    assert (data.name, len(data), data.cases.y.tolist()) == ("given data", 3, [0, 1, 2])


def test_data_come_back_as_they_are() -> None:
    data = load_data("digits/test[:3]")
    assert load_data(data) is data


@pytest.mark.parametrize("spec", [3, None, [1, 2], (1, 2, 3)])
def test_other_things_are_no_data(spec: object) -> None:
    with pytest.raises(UsageError, match="data are a spec such as 'digits/test', a pair"):
        load_data(spec)


@pytest.mark.parametrize(
    ("text", "size"), [("32", (32, 32)), ("32x48", (32, 48)), ("1x2", (1, 2)), ("32×48", (32, 48))]
)
def test_sizes(text: str, size: tuple[int, int]) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "0x3", "3x0", "x3", "3x", "-3", "3.5", "big", "3x4x5", " 3"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as told:
        parse_size(text)
    assert str(told.value) == f"a size is written as 32 or 32x48, got {text!r}"


def test_size_is_for_folders_alone(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--size is for image folders and hf: data, 'digits/test' is none"):
        load_data("digits/test", size="8")
    (tmp_path / "images" / "a").mkdir(parents=True)
    Image.new("L", (9, 7), 51).save(tmp_path / "images" / "a" / "one.png")
    data = load_data("dir:images", size="6x5")
    assert data.spec.shape == (1, 6, 5)
    assert torch.equal(data.cases.x, torch.full((1, 1, 6, 5), 51 / 255))


@pytest.mark.parametrize("text", ["4097", "32x4097", "4097x32", "99999999999999999999"])
def test_a_size_has_a_limit(text: str) -> None:
    assert parse_size("4096x4096") == (4096, 4096)
    with pytest.raises(UsageError, match=f"a size may be 4096 at most, got '{text}'"):
        parse_size(text)


@pytest.mark.parametrize("spec", ["digits/train", "digits/test[:5]", "digits[:5]"])
def test_where_a_whole_set_is_needed_a_part_is_refused(spec: str) -> None:
    with pytest.raises(UsageError) as told:
        load_splits(spec)
    assert str(told.value) == f"this takes a whole data set, not a part of it: write digits, not {spec}"


def test_how_many_cases_validate_may_be_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(100, dtype=np.uint8).reshape(100, 1, 1).repeat(2, 1).repeat(5, 2)
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=np.zeros(100, np.uint8), x_test=x[:2], y_test=[0, 0])
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path))
    usual, fewer = load_splits("mnist"), load_splits("mnist(val=4)")
    assert [len(fewer.part(part)) for part in ("train", "val", "test")] == [96, 4, 2]
    assert fewer.part("val").name == "mnist(val=4)/val"
    assert fewer.part("test").fingerprint() == usual.part("test").fingerprint()
    own, all_ = ({image.sum().item() for image in splits.part("val").cases.x} for splits in (fewer, usual))
    assert own < all_, "they are some of the usual ones"
    assert len(load_splits("mnist(val=40)").part("val")) == 40
    assert load_data("mnist(val=4)/val[1:]").cases.origin.tolist() == [1, 2, 3]
    for spec, words in (
        ("mnist(val=0)", "val is how many training cases are kept to validate with, at least 1; got 0"),
        ("mnist(val=100)", "mnist has 100 training cases, and val=100 leaves none to train on"),
        ("mnist(", "unknown data 'mnist('; did you mean 'mnist'?"),
        ("mnist(vall=4)", "data 'mnist' has no parameter 'vall'; did you mean 'val'?"),
        ("mnist(val=4)/test", "write mnist(val=4), not mnist(val=4)/test"),
    ):
        with pytest.raises(UsageError) as told:
            load_splits(spec)
        assert words in str(told.value)
