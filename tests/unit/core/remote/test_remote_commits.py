"""Commits to an object store: the object of the line is the commit, and one writes at a time."""

import json
import time

import pytest

from assay.core import places, remote_lease, remote_run
from assay.core.errors import StorageError, UsageError
from assay.core.lock import FOREIGN_SECONDS
from assay.core.remote import Objects
from assay.core.remote_lease import Lease
from assay.core.store import find_run, opened, read
from far import CONFIG, HERE, THERE, URL, Move, commit, cut_short, files, objects, work

# Commits that are cut short.


def test_a_kill_between_the_files_and_the_line_loses_the_step_only(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed() -> None:
        with opened(URL, CONFIG, {}) as run, monkeypatch.context() as broken:
            commit(run, 1)
            cut_short(broken, "journal/000002", after=False, error=StorageError("killed"))
            run.commit({"cases/2": b"half"}, kind="found", i=2)

    with monkeypatch.context() as broken:
        broken.setattr(remote_run.Mirror, "_leave_behind", lambda *_: None)
        with pytest.raises(StorageError, match="killed"):
            killed()
    assert objects()["cases/2"] == b"half"
    move(THERE)
    work(2)
    assert files(find_run(URL)) == ["cases/1", "cases/2"]
    assert objects()["cases/2"] == bytes([2]) * 10
    assert objects()["quarantine/cases_2.1"] == b"half"


def test_an_interrupt_after_the_line_counts_as_a_commit(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(URL, CONFIG, {}) as run:
        with monkeypatch.context() as broken:
            cut_short(broken, "journal/000001", after=True, error=KeyboardInterrupt())
            with pytest.raises(KeyboardInterrupt):
                commit(run, 1)
        assert [line.step for line in run.lines] == [0, 1]
        commit(run, 2)
    assert files(find_run(URL)) == ["cases/1", "cases/2"]


def test_an_interrupt_before_the_line_leaves_the_name_free(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(URL, CONFIG, {}) as run:
        with monkeypatch.context() as broken:
            cut_short(broken, "journal/000001", after=False, error=KeyboardInterrupt())
            with pytest.raises(KeyboardInterrupt):
                run.commit({"cases/1": b"other"}, kind="found", i=1)
        commit(run, 1)
    move(THERE)
    assert read(find_run(URL)).file("cases/1") == bytes([1]) * 10


# The lease.


def passed_by(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another machine go on with the run after a time in which its writer gave no sign of life."""
    later = time.time() + 2 * FOREIGN_SECONDS
    move(THERE)
    with monkeypatch.context() as clock:
        clock.setattr(time, "time", lambda: later)
        work(2)
    move(HERE)


def test_a_second_writer_is_told_who_the_first_is(move: Move) -> None:
    with opened(URL, CONFIG, {}) as run:
        commit(run, 1)
        move(THERE)
        with pytest.raises(UsageError, match=r"memory://bucket/runs/a is in use by process \d+ on .*lease ends in"):
            work(2)
        assert places.writer_elsewhere(find_run(URL)) is not None
        move(HERE)
        commit(run, 2)
    assert places.writer_elsewhere(find_run(URL)) is None
    move(THERE)
    work(3)


def test_a_dead_holder_of_the_same_folder_is_passed_over_at_once(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(remote_run.Mirror, "_release", lambda *_: None)
        work(1)
    work(2)
    assert files(find_run(URL)) == ["cases/1", "cases/2"]


def test_a_writer_that_slept_cannot_commit(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    def slept() -> None:
        with opened(URL, CONFIG, {}) as slow:
            commit(slow, 1)
            passed_by(move, monkeypatch)
            slow.commit({"cases/2": b"zombie"}, kind="found", i=2)

    with pytest.raises(StorageError, match="writes to memory://bucket/runs/a now"):
        slept()
    assert objects()["cases/2"] == bytes([2]) * 10
    assert files(find_run(URL)) == ["cases/1", "cases/2"]
    assert (find_run(URL) / "cases/2").read_bytes() == bytes([2]) * 10


def test_two_writers_who_say_the_same_cannot_both_commit_a_step(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    def slept() -> None:
        with opened(URL, CONFIG, {}) as slow:
            commit(slow, 1)
            passed_by(move, monkeypatch)
            commit(slow, 2)  # byte for byte the same

    with pytest.raises(StorageError, match="writes to"):
        slept()


def test_a_lost_lease_is_seen_before_anything_is_written(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    def slept() -> None:
        with opened(URL, CONFIG, {}) as slow:
            told = {"pid": 1, "host": "other", "when": time.time()}
            Objects(URL).put("LOCK/000009.json", json.dumps(told).encode())
            monkeypatch.setattr(remote_lease, "_SURE_SECONDS", 0.0)
            commit(slow, 1)

    with pytest.raises(StorageError, match="process 1 on other writes to"):
        slept()
    assert "cases/1" not in objects()
    assert "LOCK/000009.json" in Objects(URL).all()


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux has a clock of that name")
def test_a_machine_that_slept_looks_before_it_writes(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a laptop sleeps, the usual clock stands still: to it, the lease was confirmed a moment ago."""
    real, stood = time.clock_gettime, time.monotonic()

    def slept() -> None:
        with opened(URL, CONFIG, {}) as slow:
            commit(slow, 1)
            passed_by(move, monkeypatch)
            monkeypatch.setattr(time, "monotonic", lambda: stood)
            away = {time.CLOCK_BOOTTIME: 2 * FOREIGN_SECONDS}
            monkeypatch.setattr(time, "clock_gettime", lambda clock: real(clock) + away.get(clock, 0.0))
            slow.commit({"cases/other": b"zombie"}, kind="found", i=2)

    with pytest.raises(StorageError, match="writes to memory://bucket/runs/a now"):
        slept()
    assert "cases/other" not in objects()


def test_a_sweep_of_many_files_stops_for_the_lease(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(URL, CONFIG, {}) as run:
        mirror = places.mirror_of(run.path)
        assert mirror is not None
        assert mirror.lease is not None
        (run.path / "late.txt").write_text("late")
        with monkeypatch.context() as clock:
            clock.setattr(remote_lease, "BEAT_SECONDS", 0.0)
            mirror._sweep(mirror.lease)
        assert "late.txt" not in objects()
        mirror._sweep(mirror.lease)
        assert "late.txt" in objects()


def reborn() -> tuple[Lease, Lease]:
    """Two leases of the same number: another one passed the first by and took all traces away, a third began anew."""
    store = Objects(URL)
    slow, between, third = Lease(store, "one"), Lease(store, "two"), Lease(store, "three")
    slow.take()
    told = json.loads(store.read("LOCK/000001.json") or b"")
    store.put("LOCK/000001.json", json.dumps(told | {"when": time.time() - 2 * FOREIGN_SECONDS}).encode())
    between.take()
    between.withdraw()
    third.take()
    assert slow.number == third.number == 1
    return slow, third


def test_a_number_that_came_again_is_not_taken_for_ones_own() -> None:
    slow, third = reborn()
    before = Objects(URL).read("LOCK/000001.json")
    slow.renew()
    assert slow.is_lost
    slow.release()
    assert Objects(URL).read("LOCK/000001.json") == before
    third.confirm(now=True)


def test_a_number_that_came_again_confirms_nobody_else() -> None:
    slow, third = reborn()
    with pytest.raises(StorageError, match="writes to memory://bucket/runs/a now"):
        slow.confirm(now=True)
    third.confirm(now=True)


def test_a_lease_that_was_taken_away_is_lost() -> None:
    lease = Lease(Objects(URL), "one")
    lease.take()
    Objects(URL).delete("LOCK/000001.json")
    with pytest.raises(StorageError, match="somebody else writes to"):
        lease.confirm(now=True)


def test_who_counts_from_a_number_that_is_gone_sees_who_began_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Objects(URL)
    store.put("LOCK/000004.json", json.dumps({"pid": 1, "host": "other", "when": time.time() - 1e4}).encode())
    late, anew = Lease(store, "one"), Lease(store, "two")
    real = Objects.create

    def create(self: Objects, name: str, content: bytes) -> bool:
        monkeypatch.setattr(Objects, "create", real)
        store.delete("LOCK/000004.json")  # of one that took the lease and whose run came to nothing
        anew.take()
        return real(self, name, content)

    monkeypatch.setattr(Objects, "create", create)
    with pytest.raises(UsageError, match="in use"):
        late.take()
    anew.confirm(now=True)
    assert list(store.all("LOCK")) == ["LOCK/000001.json"]


def test_of_two_who_find_a_stale_lease_one_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Objects(URL)
    store.put("LOCK/000004.json", json.dumps({"pid": 1, "host": "other", "when": time.time() - 1e4}).encode())
    first, second = Lease(store, "one"), Lease(store, "two")
    real = Objects.create

    def late(self: Objects, name: str, content: bytes) -> bool:
        monkeypatch.setattr(Objects, "create", real)
        first.take()  # while the second is between its look and its try
        return real(self, name, content)

    monkeypatch.setattr(Objects, "create", late)
    with pytest.raises(UsageError, match="in use"):
        second.take()
    assert first.number == 5
    assert list(store.all("LOCK")) == ["LOCK/000005.json"]


def test_a_lock_that_cannot_be_read_is_nobodys(move: Move) -> None:
    Objects(URL).put("LOCK/000002.json", b"{half")
    work(1)
    assert files(find_run(URL)) == ["cases/1"]
