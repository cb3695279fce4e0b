"""Runs in an object store: other machines find them, whole, and go on."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from assay.core import places, remote_run
from assay.core.errors import NothingToTest, StorageError, UsageError
from assay.core.remote import Objects, address
from assay.core.store import continued, find_run, new_folder, opened, read
from far import CONFIG, HERE, THERE, URL, Move, commit, files, objects, work

# What is an address.


@pytest.mark.parametrize(
    "text", ["first", "runs/first", "http://host/predict", "dir:/images", "cmd:/bin/x", "C:/x", ""]
)
def test_other_texts_are_no_addresses(text: str) -> None:
    assert address(text) is None


def test_an_address_may_come_as_a_path_and_end_in_a_slash() -> None:
    assert address(Path("s3://bucket/a/b")) == address("s3://bucket/a/b/") == "s3://bucket/a/b"


def test_a_password_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError, match="password") as told:
        address("sftp://me:hunter2@host/runs")
    assert "hunter2" not in str(told.value)


def test_a_chain_of_addresses_is_refused() -> None:
    with pytest.raises(UsageError, match="chain"):
        address("simplecache::s3://bucket/a".replace("simplecache::s3", "s3://x::s3"))


def test_a_file_address_is_the_folder_it_means(tmp_path: Path) -> None:
    path = work(1, url=f"file://{tmp_path}/lying/a")
    assert path == tmp_path / "lying" / "a"
    assert find_run(f"file://{tmp_path}/lying/a") == path


@pytest.mark.parametrize("name", ["memory://bucket/runs/..", "memory://bucket/runs/a b", "memory://a"])
def test_the_last_part_is_a_plain_name(name: str, move: Move) -> None:
    with pytest.raises(UsageError):
        work(1, url=name)


# One run, two machines.


def test_another_machine_finds_the_run_and_goes_on(move: Move) -> None:
    work(1, 2)
    move(THERE)
    assert files(find_run(URL)) == ["cases/1", "cases/2"]
    work(3)
    move(HERE)
    assert files(find_run(URL)) == ["cases/1", "cases/2", "cases/3"]
    assert {name for name in objects() if name.startswith("journal/")} == {f"journal/00000{i}.json" for i in range(4)}


def test_the_folder_is_what_a_local_run_would_be(move: Move) -> None:
    far, near = work(1, 2), work(1, 2, url="a")
    names = ("journal.jsonl", "campaign.toml", "cases/1", "cases/2")
    assert [(far / name).read_bytes() for name in names] == [(near / name).read_bytes() for name in names]
    move(THERE)
    assert (find_run(URL) / "journal.jsonl").read_bytes() == (near / "journal.jsonl").read_bytes()


def test_names_below_an_address_of_runs(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_RUNS", "memory://bucket/runs/")
    path = work(1, url="a")
    assert "journal/000001.json" in objects()
    assert find_run("a") == find_run(URL) == path
    assert places.known_as(path / "report") == f"{URL}/report"
    with pytest.raises(UsageError, match=r"no run 'b'.*memory://bucket/runs"):
        find_run("b")


def test_reading_writes_nothing_to_the_store(move: Move) -> None:
    work(1)
    before = {**objects(), **Objects(URL).all()}
    move(THERE)
    read(find_run(URL))
    assert {**objects(), **Objects(URL).all()} == before


def test_a_run_that_was_removed_is_gone_here_too(move: Move) -> None:
    work(1)
    for name in Objects(URL).all():
        Objects(URL).delete(name)
    with pytest.raises(UsageError, match=f"no run {URL}"):
        find_run(URL)


def test_runs_inside_a_run(move: Move) -> None:
    with opened(URL, CONFIG, {}) as outer:
        with opened(None, CONFIG, {}, folder=outer.path / "round-001") as inner:
            commit(inner, 1)
        commit(outer, 2)
    move(THERE)
    path = find_run(URL)
    assert files(path / "round-001") == ["cases/1"]
    assert files(path) == ["cases/2"]
    assert "round-001/journal/000001.json" in objects()


def test_work_that_adds_to_a_run(move: Move) -> None:
    work(1)
    move(THERE)
    with continued(find_run(URL)) as run:
        commit(run, 2)
    move(HERE)
    assert files(find_run(URL)) == ["cases/1", "cases/2"]


def test_another_configuration_is_refused(move: Move) -> None:
    work(1)
    move(THERE)
    with pytest.raises(UsageError, match="another configuration"), opened(URL, CONFIG | {"attack": {"eps": 1}}, {}):
        pass


def test_one_that_only_began_gives_its_name_away(move: Move) -> None:
    work()
    move(THERE)
    with opened(URL, CONFIG | {"attack": {"eps": 1}}, {}) as run:
        commit(run, 1)
    move(HERE)
    assert files(find_run(URL)) == ["cases/1"]
    assert b"eps" in objects()["journal/000000.json"]


def test_a_refused_command_leaves_nothing(move: Move) -> None:
    with pytest.raises(NothingToTest), opened(URL, CONFIG, {}):
        raise NothingToTest("no seeds")
    assert Objects(URL).all() == {}


def test_fresh_names_differ_between_machines(move: Move) -> None:
    work(1)
    move(THERE)
    with opened(URL, CONFIG, {}, fresh=True) as run:
        assert run.name == "a-2"
    move("third")
    assert new_folder(URL).name == "a-3"
    move("fourth")
    assert new_folder(URL).name == "a-4"  # though nothing but the name was taken


# What stands beside the commits.


def test_what_is_beside_the_commits_is_there_at_the_end(move: Move) -> None:
    with opened(URL, CONFIG, {}) as run:
        assert {"campaign.toml", "environment.json"} <= objects().keys()
        run.write_stats({"seconds": 2.0})
        (run.path / "gate").mkdir()
        (run.path / "gate" / "junit.xml").write_bytes(b"<x/>")
        (run.path / "half.tmp").write_bytes(b"")
        commit(run, 1)
    told = objects()
    assert json.loads(told["stats.json"])["seconds"] == 2.0
    assert told["gate/junit.xml"] == b"<x/>"
    assert {"journal.jsonl", "LOCK", "half.tmp"}.isdisjoint(told)


def test_a_file_that_grew_here_is_not_lost_to_an_older_one_there(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    path = work(1)
    with continued(path) as run:
        (run.path / "answers.jsonl").write_text("one\n")
    (path / "answers.jsonl").write_text("one\ntwo\n")  # by a command that was killed before it wrote it there
    find_run(URL)
    assert (path / "answers.jsonl").read_text() == "one\ntwo\n"
    move(THERE)
    with continued(find_run(URL)) as run:
        (run.path / "answers.jsonl").write_text("one\nthree\nfour\n")
    move(HERE)
    assert (find_run(URL) / "answers.jsonl").read_text() == "one\nthree\nfour\n"


def test_a_report_is_written_to_the_store_and_old_pictures_leave_it(move: Move) -> None:
    path = work(1)
    (path / "report").mkdir()
    (path / "report" / "old.png").write_bytes(b"old")
    places.push(path, "report/")
    (path / "report" / "old.png").rename(path / "report" / "new.png")
    places.push(path, "report/")
    assert [name for name in objects() if name.startswith("report/")] == ["report/new.png"]


def test_a_store_that_does_not_take_the_rest_does_not_stop_the_work(
    move: Move, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(URL, CONFIG, {}) as run:
        mirror = places.mirror_of(run.path)
        assert mirror is not None
        run.write_stats({"seconds": 1.0})
        with monkeypatch.context() as away:
            away.setattr(Objects, "put", _refuse)
            away.setattr(remote_run, "SWEEP_SECONDS", 0.01)
            assert mirror.lease is not None
            with mirror._followed(mirror.lease):
                commit(run, 1)
                time.sleep(0.2)
        commit(run, 2)
    assert caplog.text.count("what stands beside the commits is late") == 1
    assert files(find_run(URL)) == ["cases/1", "cases/2"]


def _refuse(*_: Any, **__: Any) -> None:
    raise StorageError("away")
