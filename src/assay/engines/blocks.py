"""The blocks of an evaluation: each a pure function of its rows, kept where there is a run to keep them in."""

import dataclasses
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from assay.core import store
from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.errors import BudgetSpent, NothingToTest
from assay.core.randomness import Stream
from assay.core.shards import decode, encode
from assay.core.store import Store
from assay.engines.ahead import ahead
from assay.engines.block_pool import BlockPool
from assay.engines.block_work import BlockWork, Outcome
from assay.engines.cascade import Block, Column
from assay.engines.cluster import Cluster
from assay.engines.stop import Stopper
from assay.subjects.target import Target

BLOCK = 256

Progress = Callable[[Mapping[str, Any]], None]
Worked = Generator[tuple[int, Outcome], None, None]


class Blocks:
    """The work of one evaluation, block by block: here, or on a cluster."""

    def __init__(
        self,
        target: Target,
        cases: Cases,
        columns: Mapping[str, Column],
        rng: Stream,
        batch: int,
        each: bool,
        keep: Store | None,
        progress: Progress,
        *,
        time_left: float | None = None,
        examples: int = 0,
        cluster: Cluster | None = None,
        deterministic: bool = False,
    ) -> None:
        self.target, self.cases, self.batch, self.keep, self.progress = target, cases, batch, keep, progress
        self.work = BlockWork(target, columns, rng, Chunks(batch), each)
        self.cluster, self.deterministic = cluster, deterministic
        self.workers: dict[str, Any] = {}  # of the cluster: how many there are, and how many were lost
        self.began, self.seconds = 0.0, 0.0
        self.spent: BudgetSpent | None = None
        self.time_left, self.late = time_left, False
        self.examples, self._room = list[Cases](), examples  # of those that fool the model, the first

    def all(self) -> list[Block]:
        """Every block, those of an earlier call read from the run; where a budget of queries ends, those before.

        Where blocks are kept, the first Ctrl-C ends after the one under way; on a cluster those under way are left.
        """
        if self.keep is None:
            return self._all(None)
        with Stopper(None) as stop:
            return self._all(stop)

    def _all(self, stop: Stopper | None) -> list[Block]:
        done = [] if self.keep is None else list(self.keep.commits("eval"))
        results = []
        for line in done:
            assert self.keep is not None  # `done` is empty otherwise
            results.append(_stored(self.keep, line.files, line.meta))
        self.began = time.perf_counter()
        starts = range(0, len(self.cases), self.batch)[len(results) :]
        worked = self._here(starts) if self.cluster is None else self._there(self.cluster, starts, stop)
        with closing(worked):  # workers go whatever happens here
            for start, outcome in worked:
                results.append(outcome.block)
                self._take(start, outcome)
                if stop is not None:
                    stop.end()
                self._tell(start + len(outcome.block.right))
        if stop is not None:
            stop.end()
        return results

    def _take(self, start: int, outcome: Outcome) -> None:
        block, made = outcome
        self._show(made)
        if self.keep is not None:
            effort = {key: list(dataclasses.astuple(e)) for key, e in block.effort.items()}
            files = _files(len(self.keep.lines), block, made, self.cases[start : start + self.batch])
            self.keep.commit(files, kind="eval", effort=effort, **self._named(start))

    def _here(self, starts: range) -> Worked:
        """Each block's start and outcome, until the time or the budget of queries is spent."""
        longest, parts = 0.0, (self.cases[start : start + self.batch] for start in starts)
        for start, rows in zip(starts, ahead(parts, self.target.device), strict=True):
            started = time.perf_counter()
            if self._no_time_for(started - self.began + longest, first=not start):
                return
            try:
                outcome = self.work.twice(rows, start, partial(self._tell, start))
            except BudgetSpent as spent:  # its answers are in the target's book: the block is done again without asking
                self.spent = spent
                return
            longest = max(longest, time.perf_counter() - started)
            yield start, outcome

    def _there(self, cluster: Cluster, starts: range, stop: Stopper | None) -> Worked:
        """The same on a cluster."""
        work = BlockPool(cluster, self.work, self.cases, deterministic=self.deterministic)
        done = starts.start

        def idle(workers: dict[str, Any]) -> bool:
            self.workers = workers
            self._tell(done)
            return stop is not None and stop.interrupted

        for start, outcome in work.all(starts, self.batch, self.time_left, first=not starts.start, idle=idle):
            done = start + len(outcome.block.right)
            yield start, outcome
        self.late, self.workers = work.late, work.state

    def _tell(self, done: int, attack: str = "") -> None:
        self.seconds = time.perf_counter() - self.began
        told = {"done": done, "of": len(self.cases), "seconds": self.seconds, "attack": attack}
        self.progress(told | ({"workers": self.workers} if self.workers else {}))

    def _no_time_for(self, end: float, *, first: bool) -> bool:
        """Whether a block that ends then, in seconds from the beginning, comes too late; the first never does."""
        self.late = self.time_left is not None and not first and end > self.time_left
        return self.late

    def _show(self, made: list[Cases]) -> None:
        """Keep some of the examples that fool the model itself, to show them where nothing is saved."""
        for cases in made:
            rows = (cases.info["success"].bool() & (cases.info["static"] == 0)).nonzero().flatten()[: self._room]
            self._room -= len(rows)
            if len(rows):
                self.examples.append(cases[rows])

    def _named(self, start: int) -> dict[str, Any]:
        """With the first block, once: what the classes are called and which values inputs take."""
        spec = self.target.spec
        return {} if start else {"classes": list(spec.classes), "bounds": list(spec.bounds)}


def _files(number: int, block: Block, made: list[Cases], clean: Cases) -> dict[str, bytes]:
    """A block's outcome with its clean inputs, which reports show, and every example made with its parent's label."""
    outcome = block.tensors() | {"x": clean.x, "origin": clean.origin}
    files = {f"state/block-{number:06d}.safetensors": encode(outcome)}
    if made:
        every = Cases.cat(made)
        columns: dict[str, Tensor] = {"x": every.x, "y": every.y, "origin": every.origin, **every.info}
        files[f"cases/step-{number:06d}.safetensors"] = encode(columns)
    return files


def _stored(run: Store, files: Mapping[str, str], meta: Mapping[str, Any]) -> Block:
    name = next(file for file in files if file.startswith("state/"))
    return Block.of(decode(run.file(name)), dict(meta["effort"]))


def load_examples(run: str | Path) -> Cases:
    """Every example that ``save`` kept: ``attack`` is its place in the suite, ``success`` if it fools the target."""
    folder = store.read(store.find_run(run))
    parts = []
    for line in folder.commits("eval"):
        for name in line.files:
            if name.startswith("cases/"):
                columns = decode(folder.file(name))
                x, y, origin = (columns.pop(key) for key in ("x", "y", "origin"))
                parts.append(Cases(x, y, origin, columns))
    if not parts:
        raise NothingToTest(f"run {folder.name} holds no examples")
    return Cases.cat(parts)
