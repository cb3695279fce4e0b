"""The run folder: what was committed is there, what is bad is set aside, and nobody else writes."""

import errno
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from assay.core import files as disk
from assay.core import journal, repair, store
from assay.core.errors import StorageError, UsageError
from assay.core.journal import Line
from assay.core.store import Store, continued, find_run, identity, new_folder, opened, read, runs_root

CONFIG: dict[str, dict[str, Any]] = {
    "run": {"kind": "fuzz", "seed": 1},
    "attack": {"eps": 0.1, "inner": {"steps": 3}},
    "budget": {"time": "10m"},
}
ENVIRONMENT = {"python": "3.11"}

HOLD = """
import sys
from assay.core.store import opened
with opened("held", {"run": {"kind": "fuzz"}}, {}):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASSAY_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    }


def found(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def three_commits(name: str = "a") -> Path:
    with opened(name, CONFIG, ENVIRONMENT) as run:
        for i in range(3):
            run.commit({f"cases/{i}": bytes([i]) * 10}, kind="found", i=i)
        return run.path


def flip(path: Path, place: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


# Making, committing, reopening.


def test_a_new_run_holds_its_configuration_and_environment(root: Path) -> None:
    with opened("a", CONFIG, ENVIRONMENT) as run:
        assert run.path == root / "a"
        assert run.name == "a"
        assert run.config == CONFIG
        assert run.damage == []
        assert [line.meta["kind"] for line in run.lines] == ["begin"]
        assert run.lines[0].meta["format"] == journal.FORMAT
    assert found(root / "a") == {"LOCK", "campaign.toml", "environment.json", "journal.jsonl"}


def test_commits_are_there_after_reopening() -> None:
    with opened("a", CONFIG, ENVIRONMENT) as run:
        run.commit({"cases/0": b"zero", "state/er": b""}, kind="found", n=2)
        run.commit({}, kind="note", text="é")
    with opened("a", CONFIG, ENVIRONMENT) as run:
        assert [line.step for line in run.lines] == [0, 1, 2]
        assert run.file("cases/0") == b"zero"
        assert run.file("state/er") == b""
        assert [line.meta for line in run.commits("note")] == [{"kind": "note", "text": "é"}]
        run.commit({"cases/1": b"one"}, kind="found")
    assert [line.step for line in read(run.path).lines] == [0, 1, 2, 3]


def test_without_a_name_each_run_is_new(root: Path) -> None:
    paths = []
    for _ in range(3):
        with opened(None, CONFIG, ENVIRONMENT) as run:
            paths.append(run.path)
    assert len(set(paths)) == 3
    assert all(path.parent == root and path.name.startswith("fuzz-") for path in paths)


def test_fresh_makes_another_run_beside_the_old_one() -> None:
    three_commits("a")
    with opened("a", CONFIG, ENVIRONMENT, fresh=True) as run:
        assert run.name == "a-2"
        assert len(run.lines) == 1


def test_new_folders_have_distinct_names(root: Path) -> None:
    assert [new_folder("x").name for _ in range(3)] == ["x", "x-2", "x-3"]
    assert found(root) == set()


def test_the_root_is_named_by_the_environment(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    assert runs_root() == root
    monkeypatch.setenv("ASSAY_RUNS", "")
    assert runs_root() == Path("runs")


@pytest.mark.parametrize("name", ["../x", "/abs", "CON", "a/b", "x" * 400, "😀", "\u202ex", ""])
def test_a_name_that_could_leave_the_root_is_refused(name: str, root: Path) -> None:
    with pytest.raises(UsageError, match="is not a plain name"):
        opened(name, CONFIG, ENVIRONMENT).__enter__()
    with pytest.raises(UsageError, match="is not a plain name"):
        new_folder(name)
    assert not root.exists() or list(root.iterdir()) == []


def test_a_symlinked_run_is_refused(root: Path, tmp_path: Path) -> None:
    root.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (root / "a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="is a symbolic link"):
        opened("a", CONFIG, ENVIRONMENT).__enter__()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_run_is_found_by_name_and_by_path() -> None:
    path = three_commits()
    assert find_run("a") == path
    assert find_run(path) == path
    with pytest.raises(UsageError, match="no run 'b'"):
        find_run("b")
    with pytest.raises(UsageError, match="no run 'bbb"):
        find_run("b" * 5000)
    (path / "journal.jsonl").unlink()
    with pytest.raises(UsageError, match=r"run 'a' has no journal in .*; the command that made it does it again"):
        find_run("a")


def test_a_folder_that_the_system_does_not_let_us_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    path = three_commits()

    def scandir(folder: str) -> None:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), folder)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(UsageError, match="cannot be read: File name too long"):
        read(path)


# The configuration.


def test_identity_leaves_budgets_and_requirements_out() -> None:
    assert identity(CONFIG | {"gate": {"accuracy": 0.9}}) == {"run": CONFIG["run"], "attack": CONFIG["attack"]}


def test_another_configuration_is_refused_with_the_difference() -> None:
    path = three_commits()
    before = snapshot(path)
    other: store.Config = {
        "run": {"kind": "fuzz", "seed": 2},
        "attack": {"inner": {"steps": 4}, "norm": "l2"},
        "budget": {},
    }
    with pytest.raises(UsageError) as refused:
        opened("a", other, ENVIRONMENT).__enter__()
    head, *rows = str(refused.value).split("\n")
    assert head.startswith("run a was made with another configuration; use --fresh")
    assert rows == [
        "  attack.eps: 0.1 in the run, (unset) asked",
        "  attack.inner.steps: 3 in the run, 4 asked",
        "  attack.norm: (unset) in the run, l2 asked",
        "  run.seed: 1 in the run, 2 asked",
    ]
    after = snapshot(path)
    assert {k: v for k, v in after.items() if k != "LOCK"} == {k: v for k, v in before.items() if k != "LOCK"}


def test_a_changed_budget_continues_the_run() -> None:
    three_commits()
    raised = CONFIG | {"budget": {"time": "20m"}, "gate": {"accuracy": 0.9}}
    with opened("a", raised, ENVIRONMENT) as run:
        assert len(run.lines) == 4
        assert run.config == raised


# What a commit accepts.


@pytest.mark.parametrize("name", ["other/x", "quarantine/x", "/x", "../x", "./x"])
def test_files_go_to_the_folders_for_committed_files(name: str) -> None:
    with opened("a", CONFIG, ENVIRONMENT) as run:
        before = snapshot(run.path)
        with pytest.raises(UsageError, match="is no new file in one of cases, state, models, flaky"):
            run.commit({name: b"x"}, kind="found")
        assert len(run.lines) == 1
        assert snapshot(run.path) == before


@pytest.mark.parametrize(
    "name",
    [
        "x",
        "journal.jsonl",
        "cases/",
        "cases/..",
        "cases/CON",
        "cases/.hidden",
        "cases/😀",
        "/cases/x",
        "../cases/x",
        "cases/../../evil",
        "cases/../evil",
        "cases//evil",
        "cases/deep/x",
        "state/deep/er/x",
    ],
)
def test_file_names_are_plain(name: str, root: Path) -> None:
    with opened("a", CONFIG, ENVIRONMENT) as run:
        before = snapshot(root)
        with pytest.raises(UsageError, match="is not a plain name"):
            run.commit({name: b"x"}, kind="found")
        assert len(run.lines) == 1
        assert snapshot(root) == before


def test_a_file_is_committed_once_and_nothing_of_a_refused_commit_stays() -> None:
    with opened("a", CONFIG, ENVIRONMENT) as run:
        run.commit({"cases/0": b"old"}, kind="found")
        with pytest.raises(UsageError, match="'cases/0' is no new file"):
            run.commit({"cases/1": b"new", "cases/0": b"new"}, kind="found")
        assert found(run.path / "cases") == {"0"}
        assert run.file("cases/0") == b"old"
        assert len(run.lines) == len(read(run.path).lines) == 2


def test_a_full_disk_undoes_the_commit_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "refused")

    with opened("a", CONFIG, ENVIRONMENT) as run:
        run.commit({"cases/0": b"zero"}, kind="found")
        before = (run.path / "journal.jsonl").read_bytes()
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(StorageError, match="the disk is full") as refused:
                run.commit({"cases/1": b"one"}, kind="found")
        assert refused.value.exit_code == 3
        assert found(run.path / "cases") == {"0"}
        assert (run.path / "journal.jsonl").read_bytes() == before
        run.commit({"cases/1": b"one"}, kind="found")
    assert [dict(line.files).keys() for line in read(run.path).lines[1:]] == [{"cases/0"}, {"cases/1"}]


def test_a_journal_that_cannot_be_written_takes_the_files_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, line: Line, *, at: int) -> None:
        raise StorageError("no")

    with opened("a", CONFIG, ENVIRONMENT) as run:
        with monkeypatch.context() as patched:
            patched.setattr(journal, "append", refuse)
            with pytest.raises(StorageError):
                run.commit({"cases/0": b"zero", "state/0": b""}, kind="found")
        assert found(run.path) == {"LOCK", "campaign.toml", "environment.json", "journal.jsonl"}


def test_facts_that_json_cannot_hold_undo_the_commit() -> None:
    with opened("a", CONFIG, ENVIRONMENT) as run:
        with pytest.raises(ValueError, match="not JSON compliant"):
            run.commit({"cases/0": b"zero"}, kind="found", score=float("nan"))
        assert found(run.path / "cases") == set()
        assert len(run.lines) == 1


def test_a_file_that_was_never_committed_is_refused() -> None:
    with pytest.raises(UsageError, match="run a has no file cases/9"):
        read(three_commits()).file("cases/9")


def test_a_file_that_changed_under_us_is_refused() -> None:
    path = three_commits()
    run = read(path)
    flip(path / "cases/1")
    with pytest.raises(UsageError, match="differs from what was committed"):
        run.file("cases/1")


def test_a_linked_folder_for_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    with opened("a", CONFIG, ENVIRONMENT) as run:
        (run.path / "cases").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(UsageError, match="'cases/x' is no new file in one of"):
            run.commit({"cases/x": b"x"}, kind="found")
        assert len(run.lines) == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_nothing_is_committed_after_the_run_was_closed() -> None:
    for context in (opened("a", CONFIG, ENVIRONMENT), continued(runs_root() / "a")):
        with context as run:
            pass
        before = snapshot(run.path)
        with pytest.raises(UsageError, match="open for reading only"):
            run.commit({"cases/0": b"zero"}, kind="found")
        assert snapshot(run.path) == before


def test_a_folder_that_cannot_be_synced_undoes_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: Path) -> None:
        raise OSError(errno.EIO, "refused")

    with opened("a", CONFIG, ENVIRONMENT) as run:
        with monkeypatch.context() as patched:
            patched.setattr(disk, "sync_folder", fail)
            with pytest.raises(StorageError, match="cannot write cases in"):
                run.commit({"cases/0": b"zero", "state/0": b"x"}, kind="found")
        assert found(run.path) == {"LOCK", "campaign.toml", "environment.json", "journal.jsonl"}
        run.commit({"cases/0": b"zero", "state/0": b"x"}, kind="found")
        assert run.file("cases/0") == b"zero"
    assert [line.step for line in read(run.path).lines] == [0, 1]


def test_an_interrupt_after_the_line_is_there_keeps_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    real = journal.append

    def late(path: Path, line: Line, *, at: int) -> None:
        real(path, line, at=at)
        raise KeyboardInterrupt

    with opened("a", CONFIG, ENVIRONMENT) as run:
        with monkeypatch.context() as patched:
            patched.setattr(journal, "append", late)
            with pytest.raises(KeyboardInterrupt):
                run.commit({"cases/0": b"zero"}, kind="found")
        assert run.lines == read(run.path).lines
        assert run.file("cases/0") == b"zero"
        run.commit({"cases/1": b"one"}, kind="found")
    again = read(run.path)
    assert ([line.step for line in again.lines], again.damage) == ([0, 1, 2], [])


def test_an_interrupt_before_the_line_is_there_undoes_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def early(path: Path, line: Line, *, at: int) -> None:
        raise KeyboardInterrupt

    with opened("a", CONFIG, ENVIRONMENT) as run:
        with monkeypatch.context() as patched:
            patched.setattr(journal, "append", early)
            with pytest.raises(KeyboardInterrupt):
                run.commit({"cases/0": b"zero"}, kind="found")
        assert run.lines == read(run.path).lines
        assert found(run.path / "cases") == set()
        run.commit({"cases/0": b"zero"}, kind="found")
    assert len(read(run.path).lines) == 2


def test_a_committed_file_that_was_deleted_is_named() -> None:
    path = three_commits()
    run = read(path)
    (path / "cases/1").unlink()
    with pytest.raises(UsageError, match=r"cases/1 cannot be read: No such file or directory"):
        run.file("cases/1")


def test_a_plain_file_is_no_run(root: Path) -> None:
    root.mkdir()
    (root / "a").write_text("mine")
    with pytest.raises(UsageError, match="is a file, not a run folder; use another --run name"):
        opened("a", CONFIG, ENVIRONMENT).__enter__()
    assert (root / "a").read_text() == "mine"


def test_the_longest_name_can_be_used_again() -> None:
    name = "n" * 100
    assert [new_folder(name).name for _ in range(3)] == [name, "n" * 94 + "-2", "n" * 94 + "-3"]
    with opened("n" * 94 + "-3", CONFIG, ENVIRONMENT) as run:
        assert len(run.lines) == 1


# Who may write.


def test_a_second_writer_is_refused_by_pid_and_host(root: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        for attempt in (opened("held", {"run": {"kind": "fuzz"}}, {}), continued(root / "held")):
            with pytest.raises(UsageError, match=f"in use by process {other.pid} on {socket.gethostname()};"):
                attempt.__enter__()
        assert len(read(root / "held").lines) == 1  # reading is always allowed
        other.communicate()
    assert other.returncode == 0
    with continued(root / "held") as run:
        run.commit({}, kind="note")


def test_a_lock_of_another_host_is_believed(root: Path) -> None:
    path = three_commits()
    (path / "LOCK").write_text('{"pid": 7, "host": "another.example"}')
    with pytest.raises(UsageError, match=r"in use by process 7 on another\.example"):
        opened("a", CONFIG, ENVIRONMENT).__enter__()
    os.utime(path / "LOCK", (1.0, 1.0))
    with opened("a", CONFIG, ENVIRONMENT) as run:
        assert len(run.lines) == 4


def test_a_reader_cannot_commit() -> None:
    run = read(three_commits())
    with pytest.raises(UsageError, match="open for reading only"):
        run.commit({}, kind="found")


def test_continuing_needs_a_run_and_no_configuration(tmp_path: Path) -> None:
    path = three_commits()
    with continued(path) as run:
        run.commit({"models/m": b"m"}, kind="model")
    assert len(read(path).lines) == 5
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no run"):
        continued(tmp_path / "empty").__enter__()


# Damage.


def test_a_changed_file_cuts_the_run_back_and_is_kept() -> None:
    path = three_commits()
    flip(path / "cases/1")
    with opened("a", CONFIG, ENVIRONMENT) as run:
        assert [line.meta.get("i") for line in run.lines] == [None, 0]
        assert run.damage == ["cases/1: missing or changed since it was committed"]
        assert run.file("cases/0") == b"\0" * 10
        assert found(path / "cases") == {"0"}
        assert found(path / "quarantine") == {"cases_1.1", "cases_2.1", "journal.jsonl.1"}
        assert (path / "quarantine/cases_2.1").read_bytes() == b"\2" * 10
        run.commit({"cases/1": b"\1" * 10}, kind="found", i=1)  # redone
    assert read(path).damage == []


def test_a_missing_file_cuts_the_run_back() -> None:
    path = three_commits()
    (path / "cases/2").unlink()
    with opened("a", CONFIG, ENVIRONMENT) as run:
        assert len(run.lines) == 3
        assert run.damage == ["cases/2: missing or changed since it was committed"]


def test_an_unlisted_file_is_set_aside() -> None:
    path = three_commits()
    (path / "cases/deep").mkdir()
    (path / "cases/deep/x").write_bytes(b"mine")
    (path / "cases/3.tmp").write_bytes(b"half")
    (path / "stats.json.tmp").write_bytes(b"half")
    with opened("a", CONFIG, ENVIRONMENT) as run:
        assert len(run.lines) == 4
        assert run.damage == []
    assert found(path / "quarantine") == {"cases_deep_x.1", "cases_3.tmp.1", "stats.json.tmp.1"}
    assert (path / "quarantine/cases_deep_x.1").read_bytes() == b"mine"


def test_nothing_in_quarantine_is_overwritten() -> None:
    path = three_commits()
    for content in (b"first", b"second"):
        (path / "cases/x").write_bytes(content)
        with opened("a", CONFIG, ENVIRONMENT):
            pass
    assert (path / "quarantine/cases_x.1").read_bytes() == b"first"
    assert (path / "quarantine/cases_x.2").read_bytes() == b"second"


def test_a_torn_journal_is_cut_to_its_last_whole_line() -> None:
    path = three_commits()
    log = path / "journal.jsonl"
    torn = log.read_bytes()[:-3]
    log.write_bytes(torn)
    with opened("a", CONFIG, ENVIRONMENT) as run:
        assert len(run.lines) == 3
        last = len(torn.split(b"\n")[-1])
        assert run.damage == [f"journal.jsonl: {last} bytes after line 3 are not valid"]
        assert (path / "quarantine/journal.jsonl.1").read_bytes() == torn
        assert found(path / "cases") == {"0", "1"}
    assert log.read_bytes() == torn[:-last]


def test_a_run_of_a_newer_format_is_refused_and_left_alone(root: Path) -> None:
    (root / "a").mkdir(parents=True)
    (root / "a/LOCK").touch()
    journal.append(root / "a/journal.jsonl", Line(0, {}, {"kind": "begin", "format": journal.FORMAT + 1}))
    before = snapshot(root)
    for attempt in (opened("a", CONFIG, ENVIRONMENT), continued(root / "a")):
        with pytest.raises(UsageError, match="newer Assay"):
            attempt.__enter__()
    with pytest.raises(UsageError, match="newer Assay"):
        read(root / "a")
    after = snapshot(root)
    assert {k: v[1] for k, v in after.items()} == {k: v[1] for k, v in before.items()}


def test_reading_shows_the_good_part_names_the_damage_and_never_writes() -> None:
    path = three_commits()
    flip(path / "cases/1")
    (path / "cases/unlisted").write_bytes(b"x")
    (path / "stats.json.tmp").write_bytes(b"x")
    with (path / "journal.jsonl").open("ab") as log:
        log.write(b'{"torn')
    before = snapshot(path)
    run = read(path)
    assert [line.meta.get("i") for line in run.lines] == [None, 0]
    assert run.file("cases/0") == b"\0" * 10
    assert run.config == CONFIG
    assert run.damage == [
        "journal.jsonl: 6 bytes after line 4 are not valid",
        "cases/1: missing or changed since it was committed",
    ]
    assert snapshot(path) == before


def test_reading_a_folder_that_is_no_run(tmp_path: Path) -> None:
    assert len(read(tmp_path / "nowhere").lines) == 0
    assert not (tmp_path / "nowhere").exists()


def guide(run: Store) -> None:
    """A commit as fuzzing makes it: what is covered lies in one of two files, written in turn."""
    name, content = f"{len(run.lines) % 2}", b"covered at %d" % len(run.lines)
    disk.make_folder(run.path / repair.GUIDANCE)
    disk.write_atomic(run.path / repair.GUIDANCE / name, content)
    run.commit({}, kind="fuzz", guidance={"file": name, "sha256": disk.sha256(content)})


@pytest.mark.parametrize("busy", [1, 1000], ids=["once", "all the time"])
def test_guidance_that_is_replaced_while_we_look_is_no_damage(busy: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = repair.bad_guidance, []
    with opened("a", CONFIG, ENVIRONMENT) as run:
        guide(run)
        guide(run)

        def late(path: Path, lines: list[Line]) -> tuple[int, str]:
            calls.append(path)
            if len(calls) <= busy:  # the writer is faster
                guide(run)
                guide(run)
            return real(path, lines)

        monkeypatch.setattr(repair, "bad_guidance", late)
        found = read(run.path)
        assert found.damage == []
        assert len(calls) == min(busy + 1, 5)
        assert len(found.lines) == 1 + 2 * len(calls)


def test_guidance_that_is_damaged_is_named() -> None:
    with opened("a", CONFIG, ENVIRONMENT) as run:
        guide(run)
        guide(run)
    flip(run.path / "guidance" / "0")
    assert read(run.path).damage == ["guidance/0: missing or changed since it was committed"]


def test_a_line_that_is_half_there_while_we_look_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    path = three_commits()
    line = Line(4, {}, {"kind": "note"}).encode()
    with (path / "journal.jsonl").open("ab", buffering=0) as log:
        log.write(line[:20])
        assert read(path).damage == ["journal.jsonl: 20 bytes after line 4 are not valid"], "nobody goes on with it"
        monkeypatch.setattr(time, "sleep", lambda _: log.write(line[20:]))
        found = read(path)
    assert found.damage == []
    assert len(found.lines) == 5


def test_the_time_that_lost_work_took_is_set_aside() -> None:
    path = three_commits()
    with continued(path) as run:
        run.write_stats({"elapsed": 1.5})
    with opened("a", CONFIG, ENVIRONMENT) as run:
        assert run.stats() == {"elapsed": 1.5}, "where nothing is lost it stays"
    flip(path / "cases/1")
    with opened("a", CONFIG, ENVIRONMENT) as run:
        assert run.stats() == {}
    assert b'"elapsed"' in (path / "quarantine/stats.json.1").read_bytes()


# Numbers for the screen.


def test_stats_are_rewritten_and_bad_ones_are_no_stats() -> None:
    path = three_commits()
    with continued(path) as run:
        assert run.stats() == {}
        run.write_stats({"elapsed": 1.5})
        run.write_stats({"elapsed": 2.5})
        assert read(path).stats() == {"elapsed": 2.5}
        with pytest.raises(ValueError, match="not JSON compliant"):
            run.write_stats({"elapsed": float("nan")})
        assert run.stats() == {"elapsed": 2.5}
    for content in (b"{", b"[]", b"\xff"):
        (path / "stats.json").write_bytes(content)
        assert read(path).stats() == {}


# Against a model in memory.


class StoreMachine(RuleBasedStateMachine):
    """Commits, reopening and damage in any order: the good prefix always survives, and nothing bad is deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.holder = ExitStack()
        self.patch = pytest.MonkeyPatch()
        self.commits: list[dict[str, bytes]] = []  # the model: the files of each commit after the first line
        self.set_aside: list[bytes] = []  # what must lie in quarantine from now on
        self.extra = 0
        self.run: Store

    @initialize()
    def begin(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.holder.callback(folder.cleanup)
        self.patch.setenv("ASSAY_RUNS", folder.name)
        self.patch.setattr(os, "fsync", lambda handle: None)  # no power is lost here, and the disk is slow
        self.path = Path(folder.name) / "m"
        self.writer = ExitStack()
        self.open()

    def open(self) -> None:
        self.run = self.writer.enter_context(opened("m", CONFIG, ENVIRONMENT))

    def close(self) -> None:
        self.writer.close()

    def lose(self, commits: int) -> None:
        """The model after reopening: only the first ``commits`` are left."""
        for files in self.commits[commits:]:
            self.set_aside += [(self.path / name).read_bytes() for name in files]
        del self.commits[commits:]

    @rule(contents=st.lists(st.binary(min_size=1, max_size=8), max_size=2))
    def commit(self, contents: list[bytes]) -> None:
        step = len(self.commits)
        files = {f"{folder}/{step}": c for folder, c in zip(("cases", "state"), contents, strict=False)}
        self.run.commit(files, kind="found", step=step)
        self.commits.append(files)

    @rule()
    def reopen(self) -> None:
        self.close()
        self.open()
        assert self.run.damage == []

    @rule(data=st.data())
    def tear_the_journal(self, data: st.DataObject) -> None:
        self.close()
        log = self.path / "journal.jsonl"
        raw = log.read_bytes()
        kept = raw[: data.draw(st.integers(raw.index(b"\n") + 1, len(raw)), "bytes left")]
        log.write_bytes(kept)
        self.lose(kept.count(b"\n") - 1)
        if not kept.endswith(b"\n"):
            self.set_aside.append(kept)
        self.open()
        assert bool(self.run.damage) == (not kept.endswith(b"\n"))

    @rule(data=st.data())
    def flip_a_byte_of_the_journal(self, data: st.DataObject) -> None:
        self.close()
        log = self.path / "journal.jsonl"
        raw = log.read_bytes()
        place = data.draw(st.integers(0, len(raw) - 1), "place")
        flip(log, place)
        self.set_aside.append(log.read_bytes())
        self.lose(max(0, raw[:place].count(b"\n") - 1))  # with its first line gone the run begins anew
        self.open()
        assert len(self.run.damage) == 1

    @precondition(lambda self: any(self.commits))
    @rule(data=st.data())
    def flip_a_byte_of_a_shard(self, data: st.DataObject) -> None:
        self.close()
        shards = [(step, name) for step, files in enumerate(self.commits) for name in files]
        step, name = data.draw(st.sampled_from(shards), "shard")
        place = data.draw(st.integers(0, len(self.commits[step][name]) - 1), "place")
        flip(self.path / name, place)
        self.set_aside.append((self.path / "journal.jsonl").read_bytes())
        self.lose(step)
        self.open()
        assert self.run.damage == [f"{name}: missing or changed since it was committed"]

    @rule(folder=st.sampled_from(["cases", "state", "models", "flaky", "cases/new"]), content=st.binary(max_size=8))
    def drop_an_unlisted_file(self, folder: str, content: bytes) -> None:
        self.close()
        self.extra += 1
        (self.path / folder).mkdir(parents=True, exist_ok=True)
        (self.path / folder / f"extra{self.extra}").write_bytes(content)
        self.set_aside.append(content)
        self.open()
        assert self.run.damage == []

    @invariant()
    def the_run_is_the_model(self) -> None:
        for run in (self.run, read(self.path)):
            assert [dict(line.files).keys() for line in run.lines[1:]] == [files.keys() for files in self.commits]
            assert [line.meta["step"] for line in run.commits("found")] == list(range(len(self.commits)))
            for files in self.commits:
                assert {name: run.file(name) for name in files} == files
        assert read(self.path).damage == []
        assert self.run.config == CONFIG

    @invariant()
    def what_is_not_committed_lies_in_quarantine(self) -> None:
        kept = [path.read_bytes() for path in (self.path / "quarantine").glob("*")]
        for content in self.set_aside:
            kept.remove(content)  # raises where it is missing
        assert kept == []
        listed = {name for files in self.commits for name in files}
        committed = {name for name in found(self.path) if name.split("/")[0] in repair.COMMITTED}
        assert committed == listed

    def teardown(self) -> None:
        if hasattr(self, "writer"):
            self.writer.close()
        self.holder.close()
        self.patch.undo()


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=25, stateful_step_count=15, deadline=None, derandomize=True, database=None
)
