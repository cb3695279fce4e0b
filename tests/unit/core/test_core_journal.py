"""The journal: every prefix of whole lines is good, nothing else is."""

import errno
import hashlib
import json
import os
from pathlib import Path

import pytest

from assay.core import journal
from assay.core.errors import StorageError, UsageError
from assay.core.journal import Line

LINES = [
    Line(0, {}, {"kind": "begin", "format": 1}),
    Line(1, {"cases/a": "0" * 64}, {"kind": "found", "n": 3, "share": 0.5}),
    Line(2, {}, {"name": 'é"\\\n😀'}),
]


def write(path: Path, lines: list[Line]) -> bytes:
    for line in lines:
        journal.append(path, line)
    return path.read_bytes()


def test_a_line_by_hand() -> None:
    body = '{"files":{"cases/a":"00"},"meta":{"kind":"x"},"step":1}'
    check = hashlib.sha256(body.encode()).hexdigest()[:16]
    raw = Line(1, {"cases/a": "00"}, {"kind": "x"}).encode()
    assert raw == (body[:-1] + f',"sum":"{check}"}}\n').encode()
    assert journal.decode(raw) == Line(1, {"cases/a": "00"}, {"kind": "x"})


def test_lines_are_read_back(tmp_path: Path) -> None:
    raw = write(tmp_path / "j", LINES)
    assert raw.count(b"\n") == 3
    assert journal.read(tmp_path / "j") == (LINES, len(raw), len(raw))


def test_no_file_is_no_lines(tmp_path: Path) -> None:
    assert journal.read(tmp_path / "j") == ([], 0, 0)


def test_an_empty_file_is_no_lines(tmp_path: Path) -> None:
    (tmp_path / "j").touch()
    assert journal.read(tmp_path / "j") == ([], 0, 0)


def test_wherever_the_tail_is_torn_the_whole_lines_are_good(tmp_path: Path) -> None:
    path = tmp_path / "j"
    raw = write(path, LINES)
    for length in range(len(raw)):
        path.write_bytes(raw[:length])
        whole = raw[:length].count(b"\n")
        good = sum(len(line.encode()) for line in LINES[:whole])
        assert journal.read(path) == (LINES[:whole], good, length)


def test_whichever_byte_is_flipped_the_lines_before_are_good(tmp_path: Path) -> None:
    path = tmp_path / "j"
    lines = [LINES[0], LINES[1], Line(2, {"cases/b": "1" * 64}, {})]
    raw = write(path, lines)
    first = len(lines[0].encode())
    second = first + len(lines[1].encode())
    for place in range(first, second):
        for bit in (0, 5):
            path.write_bytes(raw[:place] + bytes([raw[place] ^ 1 << bit]) + raw[place + 1 :])
            assert journal.read(path) == (lines[:1], first, len(raw)), (place, bit)


@pytest.mark.parametrize("raw", [b"\n", b"null\n", b"[]\n", b"3\n", b"{}\n", b'{"sum":1}\n', b"\xff\xfe\n", b'"x"\n'])
def test_what_is_no_line_is_no_line(raw: bytes) -> None:
    assert journal.decode(raw) is None


def test_a_line_that_stands_twice_or_is_missing_ends_the_good_part(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write(path, [LINES[0], LINES[1], LINES[1]])
    assert journal.read(path)[0] == LINES[:2]
    path.unlink()
    write(path, [LINES[0], LINES[2]])
    assert journal.read(path)[0] == LINES[:1]


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "j", [Line(0, {}, {"format": journal.FORMAT + 1})])
    with pytest.raises(UsageError) as refused:
        journal.read(tmp_path / "j")
    assert str(refused.value) == f"{tmp_path} was written by a newer Assay (format 2); upgrade to open it"
    assert refused.value.exit_code == 4


def test_a_full_disk_leaves_the_journal_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "j"
    before = write(path, LINES[:1])

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "refused")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"cannot write j in .*: the disk is full"):
        journal.append(path, LINES[1])
    assert path.read_bytes() == before


def test_a_short_write_leaves_the_journal_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "j"
    before = write(path, LINES[:1])
    real, writes = os.write, 0

    def fills(handle: int, content: bytes) -> int:
        nonlocal writes
        writes += 1
        return real(handle, content[:5]) if writes < 3 else 0

    monkeypatch.setattr(os, "write", fills)
    with pytest.raises(StorageError, match="the disk is full"):
        journal.append(path, LINES[1])
    assert path.read_bytes() == before


def test_a_line_that_goes_in_by_pieces_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, content: real(handle, content[:5]))
    assert journal.append(tmp_path / "j", LINES[0]) == len(LINES[0].encode())
    monkeypatch.undo()
    assert journal.read(tmp_path / "j")[0] == LINES[:1]


def test_nothing_is_added_to_a_journal_that_changed_under_us(tmp_path: Path) -> None:
    path = tmp_path / "j"
    size = journal.append(path, LINES[0])
    path.write_bytes(path.read_bytes() + b"torn")
    with pytest.raises(StorageError, match=f"has {size + 4} bytes where this command left {size}"):
        journal.append(path, LINES[1], at=size)
    assert path.read_bytes() == LINES[0].encode() + b"torn"


def test_what_json_cannot_hold_is_not_written(tmp_path: Path) -> None:
    before = write(tmp_path / "j", LINES[:1])
    with pytest.raises(ValueError, match="not JSON compliant"):
        journal.append(tmp_path / "j", Line(1, {}, {"score": float("nan")}))
    assert (tmp_path / "j").read_bytes() == before


def test_a_line_says_nothing_but_json(tmp_path: Path) -> None:
    for raw in write(tmp_path / "j", LINES).splitlines():
        assert raw.isascii()
        assert set(json.loads(raw)) == {"step", "files", "meta", "sum"}


def test_a_line_nested_too_deep_is_a_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "j"
    before = write(path, LINES[:1])
    path.write_bytes(before + b"[" * 200_000 + b"\n")
    assert journal.read(path) == (LINES[:1], len(before), len(before) + 200_001)
