"""Runs in an S3 store, asked over the network: all verbs, kills, two machines, a store that goes away."""

import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import assay
import small
from assay.core.errors import UsageError
from assay.core.remote import Objects
from assay.core.remote_lease import Lease
from assay.core.store import find_run
from commands import Nursery, Result
from s3_server import BUCKET, Door, Server, serving

KILL = """
import os, signal
from assay.core.errors import UsageError
from assay.core.remote import Objects
from assay.core.remote_lease import Lease
real = Objects.create
def create(self, name, content):
    if name.endswith({at!r}):
        if {after}:
            real(self, name, content)
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, name, content)
Objects.create = create
"""
HASTY = "from assay.core import remote; remote.PAUSE = 0.05"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


@pytest.fixture
def runs(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """An address for runs that no other test uses, with all that a campaign needs in this folder."""
    small.prepare(tmp_path)
    url = f"{BUCKET}/{tmp_path.name}"
    monkeypatch.setenv("ASSAY_RUNS", url)
    return url


@pytest.fixture
def alone(tmp_path: Path, home: Nursery, runs: str) -> dict[str, bytes]:
    """What the same campaign comes to on a disk."""
    local = tmp_path / "local"
    home.run(*small.fuzz("run"), env={"ASSAY_RUNS": str(local)}).ended(0)
    return small.committed(local / "run")


def machine(name: str) -> Mapping[str, str]:
    """What makes a command run on another machine, as far as runs can tell."""
    return {"ASSAY_CACHE": str(Path.cwd() / name)}


def names(run: str) -> set[str]:
    return {name for name in Objects(run).all() if not name.startswith("LOCK/")}


def test_two_sessions_on_two_machines_equal_a_run_on_a_disk(runs: str, home: Nursery, alone: dict[str, bytes]) -> None:
    first = home.run(*small.fuzz("run", "--cases", "20"), env=machine("one")).ended(0).json
    assert first["run"] == f"{runs}/run"
    last = home.run(*small.fuzz(f"{runs}/run"), env=machine("two")).ended(0).json
    assert 0 < first["cases"] < last["cases"]
    told = small.committed(find_run(f"{runs}/run"))
    assert {name for name in told if name != "campaign.toml"} == {name for name in alone if name != "campaign.toml"}
    assert all(told[name] == content for name, content in alone.items() if name != "campaign.toml")
    assert {f"journal/{i:06d}.json" for i in range(told["journal.jsonl"].count(b"\n"))} < names(f"{runs}/run")


def test_every_verb_takes_the_run(runs: str, home: Nursery) -> None:
    home.run(*small.fuzz("run"), env=machine("one")).ended(0)

    def elsewhere(*arguments: str) -> Result:
        return home.run(*arguments, env=machine("two")).ended(0)

    before = names(f"{runs}/run")
    status = elsewhere("status", "run", "--json").json
    assert (status["path"], status["alive"], status["damage"]) == (f"{runs}/run", False, [])
    assert elsewhere("replay", f"{runs}/run", "-k", "2", "--json", "--trust-run").json["run"] == f"{runs}/run"
    elsewhere("export", f"{runs}/run", "--to", "npz", "--out", "failures.npz")
    assert names(f"{runs}/run") == before, "looking writes nothing"
    elsewhere("select", f"{runs}/run", "--by", "random", "-k", "5", "--json")
    assert elsewhere("report", "run").out.strip() == f"{runs}/run/report/index.html"
    assert {"report/index.html", "state/selected-001.safetensors"} <= names(f"{runs}/run")
    assert home.run("status", "run", "--json", env=machine("one")).json["commits"] == status["commits"] + 1


def test_an_evaluation_is_saved_and_checked(runs: str, home: Nursery) -> None:
    save = [f"{runs}/checked" if word == "{}" else word for word in small.EVAL]
    told = home.run(*save, "--json", "--quiet", env=machine("one")).ended(0).json
    assert told["run"] == f"{runs}/checked"
    home.run("check", f"{runs}/checked", "--require", "clean>=0.1", env=machine("two")).ended(0, "met")
    assert {"state/evaluation.json", "gate/junit.xml"} <= names(f"{runs}/checked")
    home.run("report", "run", "checked", env=machine("two")).ended(4, "no run 'run'", runs)


def test_a_hardening_with_its_rounds(runs: str, home: Nursery, tmp_path: Path) -> None:
    harden = [("h" if word == "{}" else word) for word in small.HARDEN]
    told = home.run(*harden, "--json", env=machine("one")).json
    assert told["model"].startswith(f"{runs}/h/models/")
    local = home.run(*harden, "--json", env={"ASSAY_RUNS": str(tmp_path / "local")}).json
    assert told["after"] == local["after"]
    assert any(name.startswith("round-001/journal/") for name in names(f"{runs}/h"))
    assert small.committed(find_run("h")) == small.committed(tmp_path / "local" / "h")
    model = f"tiny.py:net@{told['model']}"
    home.run(
        "eval", model, "--data", "seeds.npz", "--suite", "fgsm", "--eps", "0.1", "--json", env=machine("two")
    ).ended(0)


def test_from_python(runs: str) -> None:
    found = assay.fuzz("noise", small.MODEL, "seeds.npz", run=f"{runs}/py", changes={"mutate.eps": 0.9})
    assert found.to_json()["run"] == f"{runs}/py"
    assert len(found.load()) == found.failures
    assert "journal/000001.json" in names(f"{runs}/py")
    assert assay.report(f"{runs}/py").is_file()


# Kills, and others who write.


@pytest.mark.parametrize("after", [False, True], ids=["before the line", "after the line"])
@pytest.mark.parametrize("same", [True, False], ids=["here", "elsewhere"])
def test_a_kill_changes_nothing(after: bool, same: bool, runs: str, home: Nursery, alone: dict[str, bytes]) -> None:
    kill = KILL.format(at="journal/000003.json", after=after)
    assert home.run(*small.fuzz("run"), before=kill, env=machine("one")).code == -9
    assert ("journal/000003.json" in names(f"{runs}/run")) == after
    if not same:
        said = home.run(*small.fuzz("run"), env=machine("two")).ended(4, f"{runs}/run is in use by process").said
        assert "its lease ends in" in said
        _expire(f"{runs}/run")
    home.run(*small.fuzz("run"), env=machine("one" if same else "two")).ended(0)
    assert small.committed(find_run("run")) == alone
    aside = {name for name in names(f"{runs}/run") if name.startswith("quarantine/")}
    assert bool(aside) != after, "the files that had no line are kept"


def _expire(run: str) -> None:
    """Let the holder of the lease have been silent for long."""
    name = next(name for name in Objects(run).all() if name.startswith("LOCK/"))
    told = json.loads(Objects(run).read(name) or b"")
    Objects(run).put(name, json.dumps(told | {"when": told["when"] - 1e4}).encode())


def test_a_writer_whose_lease_was_taken_stops(runs: str, home: Nursery, alone: dict[str, bytes]) -> None:
    takes = """
import subprocess, sys, json
from assay.core.errors import UsageError
from assay.core.remote import Objects
from assay.core.remote_lease import Lease
real, done = Objects.create, []
def create(self, name, content):
    if name.endswith("journal/000003.json") and not done:
        done.append(name)
        lock = next(n for n in self.all() if n.startswith("LOCK/"))
        told = json.loads(self.read(lock))
        self.put(lock, json.dumps(told | {"when": told["when"] - 1e4}).encode())
        other = subprocess.run([sys.executable, "-m", "assay", *%r], env=%r, capture_output=True)
        assert other.returncode == 0, other.stderr
    return real(self, name, content)
Objects.create = create
"""
    other = takes % (small.fuzz("run"), {**os.environ, **machine("two")})
    slow = home.run(*small.fuzz("run"), before=other, env=machine("one"))
    slow.ended(3, f"writes to {runs}/run now", "the same command goes on")
    assert small.committed(find_run("run")) == alone
    assert home.run(*small.fuzz("run"), env=machine("one")).ended(0).json["complete"]
    assert small.committed(find_run("run")) == alone


def test_of_many_at_once_one_writes_and_each_gets_a_name(runs: str) -> None:
    leases = [Lease(Objects(f"{runs}/run"), str(i)) for i in range(8)]
    with ThreadPoolExecutor(8) as workers:
        told = list(workers.map(_taken, leases))
        named = list(workers.map(lambda lease: Lease(Objects(f"{runs}/new"), lease.scratch).reserve(), leases))
    assert sorted(told) == [""] + [f"the run {runs}/run is in use"] * 7
    assert sorted(named) == [False] * 7 + [True]


def _taken(lease: Lease) -> str:
    """What it is refused with, nothing where it is not."""
    try:
        lease.take()
    except UsageError as error:
        return str(error).split(" by ")[0]
    return ""


# A store that is away, damaged, or closed to us.


def test_a_store_that_goes_away_ends_the_command_which_goes_on_later(
    runs: str, home: Nursery, server: Server, alone: dict[str, bytes]
) -> None:
    door = Door(server)
    door.shut_at = b"journal/000003.json"
    here = {**machine("one"), **door.env()}
    stopped = home.run(*small.fuzz("run"), before=HASTY, env=here)
    said = stopped.ended(3, "tried 5 times", "the same command goes on from there").said
    assert server.env()["AWS_SECRET_ACCESS_KEY"] not in stopped.err
    assert f"{runs}/run" in said
    home.run("status", "run", before=HASTY, env=here).ended(3, "tried 5 times")
    door.open()
    home.run(*small.fuzz("run"), env=here).ended(0)
    door.shut()
    assert small.committed(find_run("run")) == alone


def test_a_busy_store_is_asked_again(runs: str, home: Nursery, server: Server, alone: dict[str, bytes]) -> None:
    door = Door(server)
    door.busy = 4
    home.run(*small.fuzz("run"), before=HASTY, env={**machine("one"), **door.env()}).ended(0)
    assert door.busy == 0
    door.shut()
    assert small.committed(find_run("run")) == alone


def test_a_damaged_object_is_done_again(runs: str, home: Nursery, alone: dict[str, bytes]) -> None:
    home.run(*small.fuzz("run"), env=machine("one")).ended(0)
    shard = min(name for name in names(f"{runs}/run") if name.startswith("cases/"))
    content = bytearray(Objects(f"{runs}/run").read(shard) or b"")
    content[-1] ^= 1
    Objects(f"{runs}/run").put(shard, bytes(content))
    assert shard in home.run("status", "run", "--json", env=machine("two")).ended(0).json["damage"][0]
    home.run(*small.fuzz("run"), env=machine("one")).ended(0)
    assert small.committed(find_run("run")) == alone
    aside = f"quarantine/{shard.replace('/', '_')}.1"
    assert Objects(f"{runs}/run").read(aside) == bytes(content) == (find_run("run") / aside).read_bytes()


def test_no_credentials(runs: str, home: Nursery) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "HOME": str(Path.cwd())}
    said = home.run(*small.fuzz("run"), env=keys).ended(4, "there are no credentials for it").said
    assert len(said.splitlines()) == 1


def test_no_such_bucket(runs: str, home: Nursery) -> None:
    home.run(*small.fuzz("s3://nothing-here/run")).ended(4, "s3://nothing-here/run", "bucket does not exist")
    home.run("status", f"{runs}/none").ended(4, f"no run {runs}/none")
