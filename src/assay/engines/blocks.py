"""The blocks of an evaluation: each a pure function of its rows, kept where there is a run to keep them in."""

import dataclasses
import time
from collections.abc import Callable, Mapping
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
from assay.engines.cascade import Block, Column, run_suite
from assay.engines.once_more import once_more
from assay.engines.stop import Stopper
from assay.subjects.target import Target, answer

BLOCK = 256

Progress = Callable[[Mapping[str, Any]], None]


class Blocks:
    """The work of one evaluation, block by block."""

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
    ) -> None:
        self.target, self.cases, self.columns, self.rng, self.batch = target, cases, columns, rng, batch
        self.each, self.keep, self.progress = each, keep, progress
        self.chunks = Chunks(batch)
        self.seconds = 0.0
        self.spent: BudgetSpent | None = None
        self.time_left, self.late = time_left, False
        self.examples, self._room = list[Cases](), examples  # of those that fool the model, the first

    def all(self) -> list[Block]:
        """Every block, those of an earlier call read from the run; where a budget of queries ends, those before.

        Where blocks are kept, the first Ctrl-C ends after the one under way.
        """
        if self.keep is None:
            return self._all(lambda: None)
        with Stopper(None) as stop:
            return self._all(stop.end)

    def _all(self, end: Callable[[], None]) -> list[Block]:
        done = [] if self.keep is None else list(self.keep.commits("eval"))
        results = []
        began, longest = time.perf_counter(), 0.0
        for number, start in enumerate(range(0, len(self.cases), self.batch)):
            if number < len(done):
                assert self.keep is not None  # `done` is empty otherwise
                results.append(_stored(self.keep, done[number].files, done[number].meta))
                continue

            started = time.perf_counter()
            if self._no_time_for(started - began + longest, first=not results):
                break

            def tell(attack: str, at: int = start) -> None:
                self.seconds = time.perf_counter() - began
                self.progress({"done": at, "of": len(self.cases), "seconds": self.seconds, "attack": attack})

            try:
                rows = self.cases[start : start + self.batch].to(self.target.device)
                told = f"in the block of cases {start} to {start + len(rows) - 1}"
                block, made = once_more(partial(self._one, rows, tell), told)
            except BudgetSpent as spent:  # its answers are in the target's book: the block is done again without asking
                self.spent = spent
                break
            results.append(block)
            self._show(made)
            longest = max(longest, time.perf_counter() - started)
            if self.keep is not None:
                effort = {key: list(dataclasses.astuple(e)) for key, e in block.effort.items()}
                files = _files(len(self.keep.lines), block, made, rows)
                self.keep.commit(files, kind="eval", effort=effort, **self._named(number))
                end()
            tell("", start + len(block.right))
        return results

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

    def _named(self, number: int) -> dict[str, Any]:
        """With the first block, once: what the classes are called and which values inputs take."""
        spec = self.target.spec
        return {} if number else {"classes": list(spec.classes), "bounds": list(spec.bounds)}

    def _one(self, cases: Cases, tell: Callable[[str], None]) -> tuple[Block, list[Cases]]:
        given = answer(self.target, cases.x, self.chunks).argmax(1)
        right = given == cases.y
        block = Block(cases.y.cpu(), right.cpu(), pred=given.cpu())
        made: list[Cases] = []
        first = 0
        for name, column in self.columns.items():
            place = 0 if name == "static" else first  # a static example belongs to the attack of its white-box twin
            made += run_suite(
                column, cases, right, self.rng, self.chunks, block, name, each=self.each, first=place, watch=tell
            )
            first += len(column.attacks)
        return block, made


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
