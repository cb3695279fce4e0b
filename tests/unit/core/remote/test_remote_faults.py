"""Object stores that hold damaged objects, or do not answer."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from assay.core import remote
from assay.core.errors import StorageError, UsageError
from assay.core.remote import Objects
from assay.core.store import find_run, opened, read
from far import CONFIG, HERE, THERE, URL, Move, commit, files, objects, work

# Damage.


def flip(name: str) -> None:
    content = bytearray(Objects(URL).read(name) or b"")
    content[3] ^= 1
    Objects(URL).put(name, bytes(content))


@pytest.mark.parametrize("machine", [HERE, THERE])
def test_a_damaged_object_is_set_aside_on_both_sides(machine: str, move: Move) -> None:
    work(1, 2, 3)
    flip("cases/2")
    bad = Objects(URL).read("cases/2")
    move(machine)
    assert "cases/2" in read(find_run(URL)).damage[0]
    assert Objects(URL).read("cases/2") == bad  # whoever reads mends nothing
    path = work(2, 3)
    assert files(path) == ["cases/1", "cases/2", "cases/3"]
    assert objects()["quarantine/cases_2.1"] == bad == (path / "quarantine/cases_2.1").read_bytes()
    assert objects()["cases/2"] == bytes([2]) * 10


@pytest.mark.parametrize("machine", [HERE, THERE])
def test_a_damaged_line_cuts_the_run_there(machine: str, move: Move) -> None:
    work(1, 2, 3)
    flip("journal/000002.json")
    move(machine)
    assert files(find_run(URL)) == ["cases/1"]
    work(2, 3)
    assert files(find_run(URL)) == ["cases/1", "cases/2", "cases/3"]
    assert "quarantine/journal.jsonl.1" in objects()


def test_lines_after_a_gap_do_not_count(move: Move) -> None:
    work(1, 2, 3)
    Objects(URL).delete("journal/000002.json")
    move(THERE)
    assert files(find_run(URL)) == ["cases/1"]
    work(2)
    assert files(find_run(URL)) == ["cases/1", "cases/2"]
    assert "journal/000003.json" not in objects()


def test_a_line_of_another_history_does_not_count(move: Move) -> None:
    work(1, 2, url="memory://bucket/other/a")
    work(1, 3)
    Objects(URL).put("journal/000003.json", objects("memory://bucket/other/a")["journal/000002.json"])
    line = objects()["journal/000003.json"].replace(b'"step":2', b'"step":3')
    Objects(URL).put("journal/000003.json", line)
    move(THERE)
    run = read(find_run(URL))
    assert [line.step for line in run.lines] == [0, 1, 2]
    assert run.damage


@pytest.mark.parametrize("harm", ["the folder is removed", "a shard is removed", "the journal is damaged"])
def test_harm_to_the_cache_while_a_run_is_open_undoes_no_commit(harm: str, move: Move) -> None:
    with opened(URL, CONFIG, {}) as run:
        commit(run, 1, 2)
        before = {name for name in objects() if name.startswith(("cases/", "journal/"))}
        if harm == "the folder is removed":
            shutil.rmtree(run.path)
        elif harm == "a shard is removed":
            (run.path / "cases/1").unlink()
        else:
            content = bytearray((run.path / "journal.jsonl").read_bytes())
            content[10] ^= 1
            (run.path / "journal.jsonl").write_bytes(content)
    assert before
    assert before <= set(objects())
    work(3)
    assert files(find_run(URL)) == ["cases/1", "cases/2", "cases/3"]


def test_a_run_removed_from_the_store_can_be_made_anew(move: Move) -> None:
    work(1, 2)
    for name in Objects(URL).all():
        Objects(URL).delete(name)
    work(3)
    assert files(find_run(URL)) == ["cases/3"]


def test_damage_here_harms_nothing_there(move: Move) -> None:
    path = work(1, 2)
    kept = (path / "cases/1").stat()
    (path / "cases/1").write_bytes(b"x" * 10)
    os.utime(path / "cases/1", ns=(kept.st_atime_ns, kept.st_mtime_ns))
    assert read(find_run(URL)).damage == []
    work(3)
    assert not [name for name in objects() if name.startswith("quarantine/")]
    assert files(find_run(URL)) == ["cases/1", "cases/2", "cases/3"]


def test_objects_no_file_may_be_called_are_left_out(
    move: Move, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    work(1)
    from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

    MemoryFileSystem.store["/bucket/runs/a/../../x"] = MemoryFile(None, "/bucket/runs/a/../../x", b"out")
    move(THERE)
    assert files(find_run(URL)) == ["cases/1"]
    assert not list(tmp_path.rglob("x"))
    assert "../../x" in caplog.text


# A store that does not answer.


class Refusing:
    """Makes calls of the store fail, the first ones or all."""

    def __init__(self, patch: pytest.MonkeyPatch, call: str, times: float) -> None:
        from fsspec.implementations.memory import MemoryFileSystem

        real, self.seen = getattr(MemoryFileSystem, call), 0

        def failing(*given: Any, **more: Any) -> Any:
            self.seen += 1
            if self.seen <= times:
                raise ConnectionRefusedError("nobody listens")
            return real(*given, **more)

        patch.setattr(MemoryFileSystem, call, failing)


def test_a_call_is_tried_again(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(URL, CONFIG, {}) as run, monkeypatch.context() as patch:
        Refusing(patch, "rm_file", 0)
        refusing = Refusing(patch, "exists", remote.TRIES - 1)
        commit(run, 1)
    assert refusing.seen >= remote.TRIES
    assert files(find_run(URL)) == ["cases/1"]


def test_a_store_that_is_away_stops_the_work_which_goes_on_later(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped() -> None:
        with opened(URL, CONFIG, {}) as run:
            commit(run, 1)
            Refusing(patch, "exists", 1e9)
            commit(run, 2)

    with monkeypatch.context() as patch, pytest.raises(StorageError, match=r"nobody listens.*tried 5 times"):
        stopped()
    work(2)
    assert files(find_run(URL)) == ["cases/1", "cases/2"]
    assert [name for name in objects() if name.startswith("quarantine/")] == []


def test_access_that_is_refused_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    calls: list[str] = []

    def refused(_: Any, path: str, **__: Any) -> None:
        calls.append(path)
        raise PermissionError("Access Denied")

    monkeypatch.setattr(MemoryFileSystem, "find", refused)
    with pytest.raises(UsageError, match=r"access was refused \(Access Denied\)"):
        Objects(URL).all()
    assert len(calls) == 1


def test_a_store_without_conditional_writes_is_warned_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    real = MemoryFileSystem.pipe_file
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", lambda self, path, value, **_: real(self, path, value))
    monkeypatch.setattr(remote, "_warned", set())
    store = Objects(URL)
    assert [store.create("x", b"1"), store.create("x", b"2"), store.create("y", b"3")] == [True, False, True]
    assert store.read("x") == b"1"
    assert caplog.text.count("cannot write an object only where there is none") == 1


class Answered(Exception):
    """What packages raise, with what the server said."""

    def __init__(self, **said: Any) -> None:
        super().__init__("At least one of the pre-conditions you specified did not hold")
        self.__dict__.update(said)


@pytest.mark.parametrize(
    ("told", "below"),
    [
        (OSError(22, "did not hold"), Answered(response={"Error": {"Code": "PreconditionFailed"}})),
        (OSError(22, "did not hold"), Answered(response={"Error": {"Code": "412"}})),
        (Answered(code=412), None),
    ],
)
def test_a_condition_that_is_not_met_says_that_there_is_one(
    told: Exception, below: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    modes: list[str] = []

    def refused(_: Any, path: str, value: bytes, mode: str = "overwrite") -> None:
        modes.append(mode)
        raise told from below

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", refused)
    assert not Objects(URL).create("x", b"1")
    assert modes == ["create"], "once"
    with pytest.raises(StorageError, match="did not hold"):  # of what sets no condition it is an error like others
        Objects(URL).put("x", b"1")


def test_an_unknown_kind_of_store_is_refused() -> None:
    with pytest.raises(UsageError, match="nosuch"):
        Objects("nosuch://bucket/a").all()
