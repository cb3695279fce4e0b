"""Whole files or none, and names that stay in their folder."""

import errno
import hashlib
import os
from pathlib import Path

import pytest

from assay.core import files
from assay.core.errors import StorageError, UsageError
from assay.core.files import canonical_json, safe_name, sha256, write_atomic


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_and_replaced(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a", b"old")
    write_atomic(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert listing(tmp_path) == ["a"]


def test_content_is_durable_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    real = os.fsync

    def spy(handle: int) -> None:
        seen.append(listing(tmp_path))
        real(handle)

    monkeypatch.setattr(os, "fsync", spy)
    write_atomic(tmp_path / "a", b"new")
    assert seen == [["a.tmp"], ["a"]]  # the file under its temporary name, then the folder


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "the disk quota is used up"),
        (errno.EROFS, "the file system is read-only"),
        (errno.EACCES, "permission denied"),
        (errno.EIO, os.strerror(errno.EIO)),
    ],
)
def test_a_refused_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, reason: str
) -> None:
    write_atomic(tmp_path / "a", b"old")

    def full(handle: int) -> None:
        raise OSError(code, "refused")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError) as refused:
        write_atomic(tmp_path / "a", b"newer")
    assert refused.value.exit_code == 3
    assert str(refused.value).startswith(f"cannot write a in {tmp_path}: {reason} (5 bytes needed)")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert listing(tmp_path) == ["a"]


def test_a_refused_rename_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(errno.EIO, "refused")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(StorageError):
        write_atomic(tmp_path / "a", b"new")
    assert listing(tmp_path) == []


def test_a_missing_folder_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot write a in"):
        write_atomic(tmp_path / "nowhere" / "a", b"new")


@pytest.mark.parametrize("name", ["a", "fuzz-20260101-120000", "x" * 100, "console", "0.1_b-c.d", "com10", "A.tar.gz"])
def test_plain_names_are_taken_as_they_are(name: str) -> None:
    assert safe_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "a\\b",
        "/etc/passwd",
        "C:\\x",
        ".hidden",
        "-option",
        "a.",
        " a",
        "a ",
        "a\n",
        "a\0b",
        "\0",
        "CON",
        "con",
        "con.txt",
        "NUL",
        "Aux.tar.gz",
        "COM1",
        "lpt9.log",
        "x" * 101,
        "x" * 400,
        "😀",
        "café",
        "\u202egnp.exe",
        "ａ",
        "<script>",
    ],
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not a plain name; use letters, digits") as refused:
        safe_name(name, "class name")
    assert str(refused.value).startswith("class name ")
    assert len(str(refused.value)) < 300


def test_canonical_json_is_one_text_for_one_value() -> None:
    assert canonical_json({"b": 1, "a": [1.5, None, "é"]}) == '{"a":[1.5,null,"\\u00e9"],"b":1}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"a": float("nan")})


def test_sha256() -> None:
    assert sha256(b"abc") == hashlib.sha256(b"abc").hexdigest()
    assert sha256(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_the_folder_is_closed_again(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        files.sync_folder(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
