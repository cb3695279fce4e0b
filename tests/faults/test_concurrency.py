"""One writer per run: the others are told who it is, readers are never held up, and clocks and numbers may repeat."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import small
from assay.core.lock import FOREIGN_SECONDS
from commands import Nursery
from locks import at_work

ENDLESS = ["--cases", "100000000"]
HOST = socket.gethostname()


@pytest.fixture
def homes(home: Nursery, other_home: Nursery) -> list[Nursery]:
    """Two of them: one holds a run while the other one asks for it."""
    return [home, other_home]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    small.prepare(tmp_path)
    return tmp_path / "runs"


@pytest.mark.slow
def test_a_second_writer_is_refused_by_name_and_readers_are_not_held_up(homes: list[Nursery], root: Path) -> None:
    writer, other = homes
    child = writer.start(*small.fuzz("a", *ENDLESS))
    assert at_work(child, root / "a")
    seen = 0
    try:
        while seen < 4:
            told = other.run("status", "a", "--json")
            if "no run 'a'" in told.err:  # its first line is not there yet
                continue
            assert not told.ended(0).json["damage"]
            assert told.json["alive"] is True
            assert told.json["holder"] == {"pid": str(child.pid), "host": HOST}
            seen = max(seen, told.json["commits"])
        other.run(*small.fuzz("a", *ENDLESS)).ended(4, f"process {child.pid} on {HOST}", "--fresh")
        other.run("select", "a", "--by", "random", "-k", "1").ended(4, f"process {child.pid} on {HOST}")
        other.run("report", "a").ended(0)
    finally:
        child.kill()
        child.wait()
    assert other.run("status", "a", "--json").ended(0).json["alive"] is False, "a killed process holds nothing"
    assert (root / "a" / "LOCK").read_text().strip(), "it could not sign off"
    other.run(*small.fuzz("a")).ended(0)


@pytest.mark.slow
@pytest.mark.parametrize(("age", "code"), [(0, 4), (FOREIGN_SECONDS / 2, 4), (2 * FOREIGN_SECONDS, 0)])
def test_a_lock_of_another_host_counts_while_it_is_fresh(
    age: float, code: int, homes: list[Nursery], root: Path
) -> None:
    lock = root / "a" / "LOCK"
    lock.parent.mkdir(parents=True)
    lock.write_text(json.dumps({"pid": 77, "host": "another.example"}))
    os.utime(lock, (time.time() - age,) * 2)
    done = homes[0].run(*small.fuzz("a")).ended(code)
    assert ("process 77 on another.example" in done.err) == (code == 4)


def test_the_number_of_a_dead_process_may_come_again(homes: list[Nursery], root: Path) -> None:
    """In containers every command may have the same number and host as the one that was killed before it."""
    (root / "a").mkdir(parents=True)
    stale = f"""
import json, os, socket
from pathlib import Path
Path({str(root / "a" / "LOCK")!r}).write_text(json.dumps({{"pid": os.getpid(), "host": socket.gethostname()}}))
from assay.core.lock import folder_lock, holds
assert not holds(Path({str(root / "a")!r})), "the number in the file is not ours"
"""
    homes[0].run(*small.fuzz("a"), before=stale).ended(0)


def test_a_clock_that_jumps_back_changes_nothing(homes: list[Nursery], root: Path) -> None:
    jumping = """
import time
real, calls = time.time, 0
def back():
    global calls
    calls += 1
    return real() - 86400.0 * (calls > 2) * calls
time.time = back
"""
    homes[0].run(*small.fuzz("alone")).ended(0)
    homes[0].run(*small.fuzz("a", "--cases", "20"), before=jumping).ended(0)
    homes[0].run(*small.fuzz("a"), before=jumping).ended(0)
    homes[0].run(*small.fuzz("b"), before=jumping).ended(0)
    assert small.committed(root / "b") == small.committed(root / "alone")
    assert homes[0].run("status", "a", "--json", before=jumping).ended(0).json["seconds"] >= 0


def started(*arguments: str) -> subprocess.Popen[str]:
    """A command in an interpreter of its own, which waits for a line before it begins: all begin at once."""
    code = "import sys; from assay.cli import run; import assay.engines.fuzz; sys.stdin.readline(); "
    code += f"sys.exit(run({list(arguments)!r}))"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


@pytest.mark.slow
def test_eight_at_once(root: Path) -> None:
    """With one name one of them wins, and the others name it; without a name each has a folder of its own."""
    nameless = [part for part in small.fuzz("x") if part not in ("--run", "x")]
    children = [started(*small.fuzz("one", *ENDLESS)) for _ in range(8)]
    try:
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        lost: dict[int, subprocess.Popen[str]] = {}
        while len(lost) < 7:
            lost |= {child.pid: child for child in children if child.poll() is not None}
            assert len(lost) < 8, [child.communicate() for child in children]
            time.sleep(0.02)
        winner = next(child for child in children if child.pid not in lost)
        for child in lost.values():
            out, err = child.communicate()
            assert child.returncode == 4, err
            assert f"in use by process {winner.pid} on {HOST}" in err
            assert "Traceback" not in err
            assert not out
    finally:
        for child in children:
            child.kill()
            child.communicate()
    children = [started(*nameless) for _ in range(8)]
    told = [json.loads(child.communicate("\n")[0]) for child in children]
    assert [child.returncode for child in children] == [0] * 8
    assert len({one["run"] for one in told}) == 8
