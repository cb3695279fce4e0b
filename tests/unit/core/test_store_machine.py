"""The store against a model in memory: commits, crashes inside them, damage and other commands in any order."""

import os
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from assay.core import repair
from assay.core.errors import StorageError, UsageError
from assay.core.store import Store, continued, opened, read

CONFIG: dict[str, dict[str, Any]] = {"run": {"kind": "fuzz", "seed": 1}, "budget": {"time": 10}}
CALLS = ("open", "write", "fsync", "replace", "mkdir", "ftruncate", "utime")


class Dead(BaseException):
    """As a kill: nothing after it happens, not even what cleans up."""


class Machine(RuleBasedStateMachine):
    """The lines of the model are what every reader must find; nothing that was set aside ever goes away."""

    def __init__(self) -> None:
        super().__init__()
        self.holder, self.writer, self.patch = ExitStack(), ExitStack(), pytest.MonkeyPatch()
        self.commits: list[dict[str, bytes]] = []
        self.made = 0  # a number for every file, so that no two have the same content
        self.aside: dict[str, bytes] = {}
        self.config = CONFIG
        self.run: Store

    @initialize()
    def begin(self) -> None:
        self.folder = Path(self.holder.enter_context(tempfile.TemporaryDirectory()))
        self.patch.setenv("ASSAY_RUNS", str(self.folder))
        self.patch.setenv("ASSAY_CACHE", str(self.folder / "cache"))
        self.patch.setattr(os, "fsync", lambda handle: None)  # no power is lost here, and the disk is slow
        self.path = self.folder / "m"
        self.reopen()

    def reopen(self) -> None:
        self.writer.close()
        self.run = self.writer.enter_context(opened("m", self.config, {}))

    def files(self, count: int) -> dict[str, bytes]:
        self.made += 1
        return {f"{place}/f{self.made}": f"{place} {self.made}".encode() for place in ("cases", "state")[:count]}

    @rule(count=st.integers(0, 2))
    def commit(self, count: int) -> None:
        files = self.files(count)
        self.run.commit(files, kind="found", n=count)
        self.commits.append(files)

    @rule(data=st.data(), count=st.integers(0, 2), die=st.booleans())
    def a_commit_breaks(self, data: st.DataObject, count: int, die: bool) -> None:
        """At any call to the disk the process dies, or the disk refuses: all of the commit is there, or nothing."""
        files, at = self.files(count), data.draw(st.integers(1, 8 + 6 * count), "call")
        before, calls = len(self.run.lines), 0
        with pytest.MonkeyPatch.context() as patch:
            for name in CALLS:
                real = getattr(os, name)

                def call(*given: Any, _real: Any = real, **more: Any) -> Any:
                    nonlocal calls
                    calls += 1
                    if calls == at or (die and calls > at):
                        raise Dead if die else OSError(28, "full")
                    return _real(*given, **more)

                patch.setattr(os, name, call)
            if die:
                patch.setattr(Path, "unlink", lambda *_, **__: None)
            with suppress(Dead, StorageError):
                self.run.commit(files, kind="found", n=count)
        there = len(read(self.path).lines)
        assert there in (before, before + 1)
        if there > before:
            self.commits.append(files)
        if die:
            self.reopen()

    @rule()
    def another_command(self) -> None:
        self.writer.close()
        files = self.files(1)
        with continued(self.path) as run:
            run.commit(files, kind="found", n=1)
        self.commits.append(files)
        self.reopen()

    @rule(time=st.integers(1, 99))
    def with_another_budget(self, time: int) -> None:
        self.config = CONFIG | {"budget": {"time": time}}
        self.reopen()
        assert self.run.config["budget"]["time"] == time

    @precondition(lambda self: self.commits)
    @rule()
    def another_configuration_is_refused(self) -> None:
        self.writer.close()
        with pytest.raises(UsageError, match="another configuration"):
            self.writer.enter_context(opened("m", CONFIG | {"run": {"kind": "fuzz", "seed": 2}}, {}))
        self.reopen()

    @rule()
    def a_second_writer_is_refused(self) -> None:
        with pytest.raises(UsageError, match=f"in use by process {os.getpid()}"):
            opened("m", self.config, {}).__enter__()

    @precondition(lambda self: any(self.commits))
    @rule(data=st.data(), delete=st.booleans())
    def a_file_is_damaged(self, data: st.DataObject, delete: bool) -> None:
        self.writer.close()
        places = [(step, name) for step, files in enumerate(self.commits) for name in files]
        step, name = data.draw(st.sampled_from(places), "file")
        path = self.path / name
        if delete:
            path.unlink()
        else:
            content = bytearray(path.read_bytes())
            content[data.draw(st.integers(0, len(content) - 1), "place")] ^= 1
            path.write_bytes(content)
        shown = read(self.path)
        assert len(shown.lines) == step + 1
        assert shown.damage == [f"{name}: missing or changed since it was committed"]
        del self.commits[step:]
        self.reopen()

    @precondition(lambda self: self.commits)
    @rule(data=st.data())
    def the_journal_is_cut(self, data: st.DataObject) -> None:
        self.writer.close()
        log = self.path / "journal.jsonl"
        raw = log.read_bytes()
        kept = raw[: data.draw(st.integers(raw.index(b"\n") + 1, len(raw)), "bytes left")]
        log.write_bytes(kept)
        del self.commits[kept.count(b"\n") - 1 :]
        self.reopen()

    @rule(name=st.sampled_from(["campaign.toml", "environment.json"]), data=st.data())
    def a_small_file_is_damaged(self, name: str, data: st.DataObject) -> None:
        self.writer.close()
        content = bytearray((self.path / name).read_bytes())
        content[data.draw(st.integers(0, len(content) - 1), "place")] ^= 1
        (self.path / name).write_bytes(content)
        assert [said.partition(":")[0] for said in read(self.path).damage] == [name]
        self.reopen()

    @invariant()
    def every_reader_finds_the_model(self) -> None:
        for run in (self.run, read(self.path)):
            assert [line.step for line in run.lines] == list(range(len(self.commits) + 1))
            assert [set(line.files) for line in run.lines][1:] == [set(files) for files in self.commits]
            for files in self.commits:
                assert {name: run.file(name) for name in files} == files
        assert read(self.path).damage == []
        assert self.run.config == self.config

    @invariant()
    def nothing_lies_about(self) -> None:
        listed = {name for files in self.commits for name in files}
        found = {f"{folder}/{p.name}" for folder in repair.COMMITTED for p in (self.path / folder).glob("*")}
        assert found == listed
        assert not list(self.path.rglob("*.tmp"))

    @invariant()
    def the_quarantine_only_grows(self) -> None:
        now = {path.name: path.read_bytes() for path in (self.path / "quarantine").glob("*")}
        assert {name: now.get(name) for name in self.aside} == self.aside
        self.aside = now

    def teardown(self) -> None:
        self.writer.close()
        self.holder.close()
        self.patch.undo()


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=30, stateful_step_count=20, deadline=None, derandomize=True, database=None)
