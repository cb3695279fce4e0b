"""The files of the canonical sources, on tiny made ones; and the digits."""

import gzip
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from assay.core.errors import UsageError
from assay.subjects.data import cifar10, idx, svhn
from assay.subjects.data.digits import digits


def idx_file(path: Path, shape: tuple[int, ...], content: bytes, kind: int = 8) -> Path:
    head = bytes([0, 0, kind, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)
    path.write_bytes(gzip.compress(head + content))
    return path


def test_idx_images(tmp_path: Path) -> None:
    found = idx.parse(idx_file(tmp_path / "i.gz", (2, 3, 4), bytes(range(24))))
    assert found.dtype == np.uint8
    assert np.array_equal(found, np.arange(24).reshape(2, 3, 4))


def test_idx_labels(tmp_path: Path) -> None:
    assert idx.parse(idx_file(tmp_path / "l.gz", (3,), bytes([7, 2, 1]))).tolist() == [7, 2, 1]


def test_idx_of_another_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"i\.gz is not an idx file of bytes"):
        idx.parse(idx_file(tmp_path / "i.gz", (1,), b"\0\0\0\0", kind=13))


def test_idx_fetches_its_four_files_by_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def fetch(url: str, md5: str) -> Path:
        asked.append((url, md5))
        return idx_file(tmp_path / f"{len(asked)}.gz", (1,), bytes([len(asked)]))

    monkeypatch.setattr(idx, "fetch", fetch)
    found = idx.fetch_all("http://here/", {"x_train": "a", "y_train": "b", "x_test": "c", "y_test": "d"})
    assert {key: array.tolist() for key, array in found.items()} == {
        "x_train": [1],
        "y_train": [2],
        "x_test": [3],
        "y_test": [4],
    }
    assert asked[0] == ("http://here/train-images-idx3-ubyte.gz", "a")
    assert asked[3] == ("http://here/t10k-labels-idx1-ubyte.gz", "d")


def cifar_archive(path: Path, batches: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in batches.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def test_cifar10_records(tmp_path: Path) -> None:
    plane = 32 * 32

    def record(label: int, red: int, green: int, blue: int) -> bytes:
        return bytes([label]) + bytes([red]) * plane + bytes([green]) * plane + bytes([blue]) * plane

    batches = {f"data_batch_{i}": record(i, i, 0, 255) for i in range(1, 6)}
    batches["test_batch"] = record(9, 1, 2, 3) + record(0, 4, 5, 6)
    found = cifar10.parse(cifar_archive(tmp_path / "c.tar.gz", batches))
    assert found["x_train"].shape == (5, 3, 32, 32)
    assert found["y_train"].tolist() == [1, 2, 3, 4, 5]
    assert found["x_train"][:, 0, 0, 0].tolist() == [1, 2, 3, 4, 5]
    assert (found["x_train"][:, 2] == 255).all()
    assert found["y_test"].tolist() == [9, 0]
    assert found["x_test"][:, :, 31, 31].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert list(tmp_path.iterdir()) == [tmp_path / "c.tar.gz"]


def test_svhn_calls_ten_zero(tmp_path: Path) -> None:
    images = np.zeros((32, 32, 3, 4), np.uint8)
    images[5, 6, 1, 3] = 77
    savemat(tmp_path / "s.mat", {"X": images, "y": np.array([[1], [9], [10], [2]], np.uint8)})
    x, y = svhn.parse(tmp_path / "s.mat")
    assert x.shape == (4, 3, 32, 32)
    assert x[3, 1, 5, 6] == 77
    assert int(x.sum()) == 77
    assert y.tolist() == [1, 9, 0, 2]


def test_digits_have_fixed_parts() -> None:
    splits = digits()
    assert [len(splits.part(part)) for part in ("train", "val", "test")] == [1200, 237, 360]
    assert {splits.part(part).spec.shape for part in ("train", "val", "test")} == {(1, 8, 8)}
    assert splits.part("test").spec.classes == tuple("0123456789")


def test_digits_parts_cover_the_set_without_overlap() -> None:
    from sklearn.datasets import load_digits

    def multiset(rows: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> list[bytes]:
        return sorted(row.tobytes() for row in rows)

    splits = digits()
    parts = [splits.part(part).cases.x.flatten(1).numpy() for part in ("train", "val", "test")]
    original = (load_digits().images / 16.0).astype("float32").reshape(-1, 64)
    assert multiset(np.concatenate(parts)) == multiset(original)


def test_digits_are_the_same_every_time() -> None:
    first, second = digits(), digits()
    assert {part: first.part(part).fingerprint() for part in ("train", "val", "test")} == {
        part: second.part(part).fingerprint() for part in ("train", "val", "test")
    }
    assert first.part("test").cases.y[:12].tolist() == second.part("test").cases.y[:12].tolist()
