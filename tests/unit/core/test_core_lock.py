"""One writer per folder, and the others are told who it is."""

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay.core import lock
from assay.core.errors import StorageError, UsageError
from assay.core.lock import FOREIGN_SECONDS, folder_lock, holder, keep_alive

HOLD = """
import sys
from pathlib import Path
from assay.core.lock import folder_lock
with folder_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_lock_says_who_holds_it_and_forgets_afterwards(tmp_path: Path) -> None:
    with folder_lock(tmp_path):
        assert holder(tmp_path) == {"pid": str(os.getpid()), "host": socket.gethostname()}
    assert holder(tmp_path) is None


def test_the_lock_can_be_taken_again(tmp_path: Path) -> None:
    for _ in range(2):
        with folder_lock(tmp_path):
            assert holder(tmp_path) is not None


def test_the_lock_is_given_back_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), folder_lock(tmp_path):
        raise ZeroDivisionError
    with folder_lock(tmp_path):
        assert holder(tmp_path) is not None


def test_the_same_process_cannot_take_it_twice(tmp_path: Path) -> None:
    with folder_lock(tmp_path), pytest.raises(UsageError, match=f"in use by process {os.getpid()} on"):
        folder_lock(tmp_path).__enter__()


def test_another_process_is_named_and_its_death_frees_the_lock(tmp_path: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(UsageError) as refused:
            folder_lock(tmp_path).__enter__()
        assert refused.value.exit_code == 4
        assert str(refused.value) == (
            f"the run folder {tmp_path} is in use by process {other.pid} on {socket.gethostname()}; "
            "wait for it, stop it, or start another run with --fresh"
        )
        assert holder(tmp_path) == {"pid": str(other.pid), "host": socket.gethostname()}
        other.kill()
    assert holder(tmp_path) == {"pid": str(other.pid), "host": socket.gethostname()}  # it could not sign off
    with folder_lock(tmp_path):
        assert holder(tmp_path) == {"pid": str(os.getpid()), "host": socket.gethostname()}


def foreign(folder: Path, age: float) -> None:
    path = folder / "LOCK"
    path.write_text(json.dumps({"pid": 7, "host": "another.example"}))
    then = path.stat().st_mtime - age
    os.utime(path, (then, then))


@pytest.mark.parametrize("age", [0.0, FOREIGN_SECONDS / 2, -FOREIGN_SECONDS / 2])
def test_a_live_lock_of_another_host_is_believed(tmp_path: Path, age: float) -> None:
    foreign(tmp_path, age)
    with pytest.raises(UsageError, match=r"in use by process 7 on another\.example"):
        folder_lock(tmp_path).__enter__()
    assert holder(tmp_path) == {"pid": "7", "host": "another.example"}


@pytest.mark.parametrize("age", [2 * FOREIGN_SECONDS, -2 * FOREIGN_SECONDS])
def test_a_silent_lock_of_another_host_is_taken_over(tmp_path: Path, age: float) -> None:
    foreign(tmp_path, age)
    with folder_lock(tmp_path):
        assert holder(tmp_path) == {"pid": str(os.getpid()), "host": socket.gethostname()}


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"pid": 1}', "\0"])
def test_a_lock_file_that_cannot_be_read_is_nobodys(tmp_path: Path, content: str) -> None:
    (tmp_path / "LOCK").write_text(content)
    assert holder(tmp_path) is None
    with folder_lock(tmp_path):
        assert holder(tmp_path) is not None


def test_a_sign_of_life_moves_the_clock_of_the_file(tmp_path: Path) -> None:
    with folder_lock(tmp_path) as handle:
        os.utime(tmp_path / "LOCK", (1.0, 1.0))
        keep_alive(handle)
        assert (tmp_path / "LOCK").stat().st_mtime > 1_000_000.0


def test_a_holder_gives_signs_of_life_however_long_its_step_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "_BEAT_SECONDS", 0.01)
    with folder_lock(tmp_path):
        for _ in range(2):
            os.utime(tmp_path / "LOCK", (1.0, 1.0))
            until = time.monotonic() + 10
            while (moved := (tmp_path / "LOCK").stat().st_mtime) == 1.0 and time.monotonic() < until:
                time.sleep(0.01)
            assert moved > 1_000_000.0
    os.utime(tmp_path / "LOCK", (1.0, 1.0))
    time.sleep(0.05)
    assert (tmp_path / "LOCK").stat().st_mtime == 1.0, "it ends with the lock"


@pytest.mark.parametrize("again", [True, False], ids=["made anew", "gone"])
def test_a_lock_file_that_went_while_it_was_locked_is_no_lock(
    again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run was given up between our opening it and our locking it: who comes next would lock another file."""
    path, real, calls = tmp_path / "LOCK", fcntl.flock, []

    def flock(handle: int, how: int) -> None:
        real(handle, how)
        calls.append(handle)
        if len(calls) == 1:
            path.rename(tmp_path / "old")  # kept, so that its number is not given to the new one
            if again:
                path.touch()

    monkeypatch.setattr(fcntl, "flock", flock)
    with folder_lock(tmp_path) as handle:
        assert os.fstat(handle).st_ino == path.stat().st_ino
        assert holder(tmp_path) is not None


def test_no_file_descriptor_is_lost(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with folder_lock(tmp_path):
        for _ in range(3):
            with pytest.raises(UsageError, match="in use"):
                folder_lock(tmp_path).__enter__()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_child_that_keeps_the_file_open_does_not_keep_the_lock(tmp_path: Path) -> None:
    with folder_lock(tmp_path) as handle:
        child = os.dup(handle)  # what a fork does: another descriptor of the same open file
    with folder_lock(tmp_path):
        assert holder(tmp_path) is not None
    os.close(child)


def test_a_linked_lock_is_refused_and_its_file_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "LOCK").symlink_to(tmp_path / "precious")
    with pytest.raises(StorageError, match=r"cannot write LOCK in .*symbolic links"):
        folder_lock(tmp_path / "run").__enter__()
    assert (tmp_path / "precious").read_text() == "mine"
