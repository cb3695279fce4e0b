"""Named data sets and .npz files."""

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.core.errors import NothingToTest, UsageError
from assay.subjects.bench import Data, Splits
from assay.subjects.data import archive
from assay.subjects.data.load import load_data

Array = np.ndarray[Any, Any]


def only(splits: Splits) -> Data:
    """The one set of a folder that has no parts."""
    assert splits.whole is not None
    return splits.whole


def raw(n: int, start: int = 0) -> Array:
    """Images of 5×5 bytes, each one different."""
    flat = np.arange(start, start + n, dtype=np.uint32)
    low, high = (flat & 255).astype(np.uint8), (flat >> 8).astype(np.uint8)
    return np.stack([low, high] * 12 + [low], 1).reshape(n, 5, 5)


def whole(train: int = 5010, test: int = 12) -> dict[str, Array]:
    return {
        "x_train": raw(train),
        "y_train": np.arange(train) % 10,
        "x_test": raw(test, 40_000),
        "y_test": np.arange(test) % 10,
    }


def save(path: Path, arrays: dict[str, Array]) -> None:
    np.savez(path, **arrays)  # type: ignore[arg-type]  # its stub reads ** as its one flag


def refuse() -> archive.Arrays:
    raise AssertionError("the data lie on disk: nothing may be fetched")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or fills the user's own cache."""
    monkeypatch.setattr(archive, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.delenv("ASSAY_DATA", raising=False)
    return tmp_path / "cache"


def keys(data: Data | None) -> set[bytes]:
    assert data is not None
    return {row.numpy().tobytes() for row in data.cases.x}


def test_named_data_come_from_the_given_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "given").mkdir()
    save(tmp_path / "given" / "made_up.npz", whole())
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path / "given"))
    splits = archive.named("made-up", tuple("abcdefghij"), refuse)
    sizes = [len(splits.part(part)) for part in ("train", "val", "test")]
    assert sizes == [4509, 501, 12]  # a tenth of the training part, 5000 at most
    assert splits.part("test").spec.classes == tuple("abcdefghij")
    assert splits.part("train").name == "made-up/train"
    assert torch.equal(splits.part("test").cases.x[:, 0] * 255, torch.from_numpy(raw(12, 40_000)).float())
    assert not keys(splits.train) & keys(splits.val)
    assert len(keys(splits.train) | keys(splits.val)) == 5010


def test_named_splits_are_the_same_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "made_up.npz", whole())
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path))
    first, second = (archive.named("made-up", tuple("0123456789"), refuse) for _ in range(2))
    for part in ("train", "val", "test"):
        assert first.part(part).fingerprint() == second.part(part).fingerprint()


def test_mnist_is_found_in_the_given_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "mnist.npz", whole())
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path))
    data = load_data("mnist/test[:3]")
    assert (data.name, len(data), data.spec.shape, data.cases.y.tolist()) == ("mnist/test[:3]", 3, (1, 5, 5), [0, 1, 2])


def test_fashion_mnist_file_has_an_underscore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "fashion_mnist.npz", whole())
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path))
    assert load_data("fashion-mnist").spec.classes[-1] == "Ankle boot"


def test_cifar10_in_channels_last_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notices: pytest.LogCaptureFixture
) -> None:
    arrays = whole()
    arrays |= {name: np.stack([arrays[name]] * 3, -1) for name in ("x_train", "x_test")}
    save(tmp_path / "cifar10.npz", arrays)
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path))
    data = load_data("cifar10/test")
    assert data.spec.shape == (3, 5, 5)
    assert data.spec.classes[6] == "frog"
    assert torch.equal(data.cases.x[:, 2] * 255, torch.from_numpy(raw(12, 40_000)).float())
    assert notices.text == ""  # of a named set it is known how it is stored


def test_fetched_data_are_kept_and_read_from_the_cache(cache: Path, notices: pytest.LogCaptureFixture) -> None:
    first = archive.named("made-up", tuple("0123456789"), lambda: whole(5003, 4))
    assert "fetching made-up" in notices.text
    assert [path.name for path in cache.iterdir()] == ["made_up.npz"]
    second = archive.named("made-up", tuple("0123456789"), refuse)
    assert first.part("test").fingerprint() == second.part("test").fingerprint()


def test_the_given_folder_comes_before_the_cache(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir()
    save(cache / "made_up.npz", whole(5003, 4))
    save(tmp_path / "made_up.npz", whole(5003, 7))
    assert len(archive.named("made-up", tuple("0123456789"), refuse).part("test")) == 4
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path))
    assert len(archive.named("made-up", tuple("0123456789"), refuse).part("test")) == 7


@pytest.mark.parametrize("error", [OSError("no route"), ValueError("hash does not match"), TimeoutError()])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "svhn"])
def test_a_failed_fetch_names_the_way_without_network(
    name: str, error: Exception, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pooch

    def fail(*args: object, **settings: object) -> str:
        assert str(settings["known_hash"]).startswith("md5:")
        raise error

    monkeypatch.setattr(pooch, "retrieve", fail)
    with pytest.raises(UsageError, match=r"cannot fetch https?://.*ASSAY_DATA") as told:
        load_data(f"{name}/test")
    assert type(error).__name__ in str(told.value)
    assert not list(cache.rglob("*.npz"))


def test_x_and_y_are_one_set_for_every_purpose(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=raw(4), y=np.arange(4), classes=np.array(["cat", "dog", "emu", "fox"]))
    splits = archive.from_npz(tmp_path / "d.npz")
    assert splits.train is splits.test is None
    with pytest.raises(UsageError, match="one set without parts"):
        splits.part("test")
    assert splits.val is None
    assert only(splits).spec.classes == ("cat", "dog", "emu", "fox")
    assert only(splits).name == "d.npz"


def test_x_alone_is_unlabelled(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=raw(4))
    assert only(archive.from_npz(tmp_path / "d.npz")).cases.y.tolist() == [-1] * 4


def test_parts_share_their_classes(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "d.npz",
        x_train=raw(4),
        y_train=np.array([0, 1, 2, 5]),
        x_val=raw(2, 10),
        y_val=np.array([0, 1]),
        x_test=raw(3, 20),
        y_test=np.array([0, 1, 3]),
    )
    splits = archive.from_npz(tmp_path / "d.npz")
    assert [len(splits.part(part)) for part in ("train", "val", "test")] == [4, 2, 3]
    assert {splits.part(part).spec.classes for part in ("train", "val", "test")} == {tuple("012345")}
    assert splits.part("val").name == "d.npz/val"


def test_parts_with_class_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x_test=raw(2), y_test=np.array([0, 1]), classes=np.array(["a", "b", "c"]))
    splits = archive.from_npz(tmp_path / "d.npz")
    assert splits.part("test").spec.classes == ("a", "b", "c")
    with pytest.raises(UsageError, match=r"d\.npz has no part 'train'; it has test"):
        splits.part("train")


def test_too_few_class_names_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=raw(3), y=np.arange(3), classes=np.array(["a", "b"]))
    with pytest.raises(UsageError, match=r"labels of d\.npz must be in 0\.\.1, got 2 \(first rows: 2\)$"):
        archive.from_npz(tmp_path / "d.npz")


def test_other_arrays_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", images=raw(3), labels=np.arange(3))
    with pytest.raises(UsageError, match=r"has the arrays images, labels; expected x and y"):
        archive.from_npz(tmp_path / "d.npz")


def test_an_archive_without_arrays_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz")
    with pytest.raises(UsageError, match=r"has the arrays none; expected x and y"):
        archive.from_npz(tmp_path / "d.npz")


def test_an_empty_set_is_nothing_to_test(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=raw(0), y=np.arange(0))
    with pytest.raises(NothingToTest, match=r"d\.npz holds no case"):
        archive.from_npz(tmp_path / "d.npz")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no such file: .*none\.npz"):
        archive.read_npz(tmp_path / "none.npz")


class Canary:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("member", ["x", "y", "classes"])
def test_pickled_members_are_refused_and_never_run(member: str, tmp_path: Path) -> None:
    bad = np.empty(2, object)
    bad[:] = [Canary(tmp_path / "canary"), 1]
    good = {"x": raw(2), "y": np.arange(2)}
    save(tmp_path / "d.npz", good | {member: bad})
    with pytest.raises(UsageError, match=r"d\.npz is not a readable \.npz file: Object arrays cannot be loaded"):
        archive.from_npz(tmp_path / "d.npz")
    assert not (tmp_path / "canary").exists()


def test_a_bare_pickle_is_refused_and_never_run(tmp_path: Path) -> None:
    import pickle

    (tmp_path / "d.npz").write_bytes(pickle.dumps({"x": Canary(tmp_path / "canary")}))
    with pytest.raises(UsageError, match=r"d\.npz is not an \.npz file; save arrays with numpy\.savez"):
        archive.from_npz(tmp_path / "d.npz")
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_a_truncated_archive_is_refused(share: float, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=raw(40), y=np.arange(40))
    content = (tmp_path / "d.npz").read_bytes()
    (tmp_path / "d.npz").write_bytes(content[: int(len(content) * share)])
    with pytest.raises(UsageError, match=r"d\.npz is not an \.npz file; save arrays with numpy\.savez"):
        archive.from_npz(tmp_path / "d.npz")


def test_a_changed_byte_is_found_by_the_checksum(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=raw(40), y=np.arange(40))
    content = bytearray((tmp_path / "d.npz").read_bytes())
    content[400] ^= 1  # inside the stored, not compressed, pixels
    (tmp_path / "d.npz").write_bytes(content)
    with pytest.raises(UsageError, match=r"d\.npz is not a readable \.npz file: Bad CRC-32"):
        archive.from_npz(tmp_path / "d.npz")


@pytest.mark.parametrize("content", [b"<!DOCTYPE html><html></html>", b"x,y\n1,2\n"])
def test_something_else_under_the_name_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "d.npz").write_bytes(content)
    with pytest.raises(UsageError, match=r"d\.npz is not an \.npz file; save arrays with numpy\.savez"):
        archive.from_npz(tmp_path / "d.npz")


def test_members_that_would_leave_the_folder_stay_in_memory(tmp_path: Path) -> None:
    held = io.BytesIO()
    np.save(held, raw(2))
    (tmp_path / "deep").mkdir()
    with zipfile.ZipFile(tmp_path / "deep" / "d.npz", "w") as file:
        for name in ("x.npy", "../../slip.npy", "/abs.npy", "CON.npy"):
            file.writestr(name, held.getvalue())
    assert len(only(archive.from_npz(tmp_path / "deep" / "d.npz"))) == 2
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["d.npz", "deep"]


def test_an_npy_file_by_another_name_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", raw(3))
    (tmp_path / "d.npy").rename(tmp_path / "d.npz")
    with pytest.raises(UsageError, match=r"d\.npz is not an \.npz file; save arrays with numpy\.savez"):
        archive.from_npz(tmp_path / "d.npz")


def test_whichever_byte_of_a_compressed_archive_is_flipped(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez_compressed(path, x=raw(3), y=np.arange(3))
    whole = path.read_bytes()
    good = archive.read_npz(path)
    refused: list[str] = []
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            read = archive.read_npz(path)
        except UsageError as error:
            refused.append(str(error))
        else:  # dates and the like: what is read is right, or gone
            assert all(np.array_equal(read[key], good[key]) for key in read.keys() & good.keys())
    assert len(refused) > len(whole) / 2
    assert [told for told in refused if "d.npz is not " not in told] == []


@pytest.mark.parametrize("missing", ["x_train", "y_train", "x_test", "y_test"])
def test_a_named_archive_that_lacks_arrays_is_refused(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "made_up.npz", {key: array for key, array in whole(20).items() if key != missing})
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path))
    with pytest.raises(UsageError, match=rf"made_up\.npz lacks {missing}; it is not a copy of made-up"):
        archive.named("made-up", tuple("0123456789"), refuse)


@pytest.mark.parametrize(("rows", "val"), [(10, 1), (25, 2), (49_990, 4999), (50_001, 5000), (60_000, 5000)])
def test_a_small_named_set_has_all_its_parts(
    rows: int, val: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "made_up.npz", whole(rows))
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path))
    splits = archive.named("made-up", tuple("0123456789"), refuse)
    assert [len(splits.part(part)) for part in ("train", "val", "test")] == [rows - val, val, 12]


@pytest.mark.parametrize(
    "names", [np.array("ab"), np.array([["a", "b"]]), np.array([0.5, 1.5]), np.array([True, False]), np.array(3)]
)
def test_class_names_of_another_form_are_refused(names: Array, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=raw(2), y=np.arange(2), classes=names)
    with pytest.raises(UsageError, match=r"'classes' in .*d\.npz must be a list of names, got shape"):
        archive.from_npz(tmp_path / "d.npz")


def test_class_names_may_be_numbers(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=raw(2), y=np.arange(2), classes=np.array([7, 3]))
    assert only(archive.from_npz(tmp_path / "d.npz")).spec.classes == ("7", "3")
