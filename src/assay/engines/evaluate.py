"""Evaluation: accuracy on clean inputs and under a suite of attacks, with intervals and the whole protocol.

Cases are worked in blocks, each a pure function of its rows: results do not depend on the block size, and a saved
evaluation resumes after its last block.
"""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from assay.core import environment, norms, store
from assay.core.cases import UNLABELLED, Cases
from assay.core.chunks import Chunks
from assay.core.errors import NothingToTest, UsageError
from assay.core.randomness import Stream
from assay.core.shards import decode, encode
from assay.core.specs import Step
from assay.core.store import Store
from assay.core.units import budget
from assay.engines.cascade import Block, Column, run_suite
from assay.engines.checks import warnings_of
from assay.engines.evaluation import Evaluation, numbers_table, tally
from assay.engines.protocol import protocol_of, to_the_end
from assay.engines.session import session
from assay.recipes.recipe import attacks_of
from assay.subjects.bench import Data, fitted
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target
from assay.subjects.target import Target, answer, require

BLOCK = 256

Progress = Callable[[Mapping[str, Any]], None]


def evaluate(
    model: str | nn.Module | Target,
    data: str | Data,
    *,
    suite: str | tuple[Step, ...] = "fast",
    eps: str | float | None = None,
    norm: str = "linf",
    static_from: str | nn.Module | Target | None = None,
    save: str | None = None,
    each: bool = False,
    seed: int = 0,
    batch: int = BLOCK,
    device: str = "auto",
    fresh: bool = False,
    deterministic: bool = False,
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    progress: Progress | None = None,
) -> Evaluation:
    """Accuracy of a model, clean and under attack.

    The suite is a cascade: an attack sees only inputs that survived those before it, and its accuracy is what is left
    after it. With ``each``, every attack sees every rightly classified input. ``static_from`` adds a column of its own:
    examples made on that other model and judged here. ``save`` keeps every example made in a run of that name.
    """
    given = load_data(data, part="test")
    target = load_target(model, data=given, device=device, mean=mean, std=std)
    given = fitted(target, given)
    labelled = given.cases[given.cases.y != UNLABELLED]
    if not len(labelled):
        raise NothingToTest(f"{given.name} has no labels, so there is no accuracy to measure")
    norms.check(norm)
    attacks = attacks_of(suite, {"eps": None if eps is None else budget(eps), "norm": norm})
    protocol = protocol_of(_name(model), target, given, attacks, eps, seed=seed, each=each)
    columns = {"attacks": Column(target, target, attacks)}
    if static_from is not None:
        source = load_target(static_from, data=given, device=device, mean=mean, std=std)
        if fitted(source, given) is not given:
            raise UsageError(
                "the model of --static-from orders its classes otherwise than the target; retrain one of them"
            )
        columns["static"] = Column(source, target, {name: to_the_end(attack) for name, attack in attacks.items()})
    for column in columns.values():
        for name, attack in attacks.items():
            require(column.maker, attack.entry.needs, f"attack {name!r}")
    for attack in (a for a in attacks.values() if not a.from_file):
        # Once on no inputs at all: parameters that cannot work are refused before a run folder is made.
        none = torch.zeros(0, dtype=torch.int64, device=target.device)
        x = torch.zeros(0, *target.spec.shape, device=target.device)
        attack(columns["attacks"].maker, x, none, rng=Stream(0).rows(none))
    with ExitStack() as open_for_run:
        open_for_run.enter_context(session(deterministic=deterministic))
        for column in columns.values():
            open_for_run.enter_context(column.maker.ready())
            open_for_run.enter_context(column.judge.ready())
        keep = None
        if save is not None:
            config = _config(model, target, given, columns, protocol, batch)
            keep = open_for_run.enter_context(store.opened(save, config, environment.describe(), fresh=fresh))
        work = _Work(
            target,
            labelled,
            columns,
            Stream(seed, ("eval",)),
            batch,
            each,
            keep,
            progress or (lambda _: None),
        )
        blocks = work.blocks()
        static = None if static_from is None else _name(static_from)
        result = tally(blocks, target.spec.classes, protocol, static=static)
        result.warnings = warnings_of(target, labelled, result)
        if keep is not None:
            result.run = str(keep.path)
            if next(keep.commits("numbers"), None) is None:
                keep.commit({"state/numbers.json": json.dumps(numbers_table(result)).encode()}, kind="numbers")
            keep.write_stats({"seconds": work.seconds, **result.to_json()})
    return result


class _Work:
    """The blocks of one evaluation."""

    def __init__(
        self,
        target: Target,
        cases: Cases,
        columns: dict[str, Column],
        rng: Stream,
        batch: int,
        each: bool,
        keep: Store | None,
        progress: Progress,
    ) -> None:
        self.target, self.cases, self.columns, self.rng, self.batch = target, cases, columns, rng, batch
        self.each, self.keep, self.progress = each, keep, progress
        self.chunks = Chunks(batch)
        self.seconds = 0.0

    def blocks(self) -> list[Block]:
        done = [] if self.keep is None else list(self.keep.commits("eval"))
        results = []
        began = time.perf_counter()
        for number, start in enumerate(range(0, len(self.cases), self.batch)):
            if number < len(done):
                assert self.keep is not None  # `done` is empty otherwise
                results.append(_stored(self.keep, done[number].files, done[number].meta))
                continue
            block, made = self._one(self.cases[start : start + self.batch].to(self.target.device))
            results.append(block)
            if self.keep is not None:
                self.keep.commit(_files(len(self.keep.lines), block, made), kind="eval", seconds=block.seconds)
            self.seconds = time.perf_counter() - began
            self.progress({"done": start + len(block.right), "of": len(self.cases), "seconds": self.seconds})
        return results

    def _one(self, cases: Cases) -> tuple[Block, list[Cases]]:
        logits = answer(self.target, cases.x, self.chunks)
        right = logits.argmax(1) == cases.y
        block = Block(cases.y.cpu(), right.cpu(), {}, {}, {})
        made: list[Cases] = []
        for name, column in self.columns.items():
            made += run_suite(column, cases, right, self.rng, self.chunks, block, name, each=self.each)
        return block, made


def _files(number: int, block: Block, made: list[Cases]) -> dict[str, bytes]:
    """A block's outcome, and every example it made with the label of its parent."""
    files = {f"state/block-{number:06d}.safetensors": encode(block.tensors())}
    if made:
        every = Cases.cat(made)
        columns: dict[str, Tensor] = {"x": every.x, "y": every.y, "origin": every.origin, **every.info}
        files[f"cases/step-{number:06d}.safetensors"] = encode(columns)
    return files


def _stored(run: Store, files: Mapping[str, str], meta: Mapping[str, Any]) -> Block:
    name = next(file for file in files if file.startswith("state/"))
    return Block.of(decode(run.file(name)), dict(meta["seconds"]))


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


def _name(model: object) -> str:
    """A model as text; a live one has no name of its own."""
    return model if isinstance(model, str) else "module"


def _config(
    model: object,
    target: Target,
    data: Data,
    columns: Mapping[str, Column],
    protocol: Mapping[str, Any],
    batch: int,
) -> dict[str, dict[str, Any]]:
    names = {name: column.maker.fingerprint() for name, column in columns.items() if name != "attacks"}
    return {
        "run": {"kind": "eval", "seed": protocol["seed"], "block": batch, "cascade": protocol["cascade"]},
        "target": {
            "model": _name(model),
            "fingerprint": target.fingerprint(),
            **names,
        },
        "data": {"spec": data.name, "fingerprint": data.fingerprint()},
        "suite": dict(protocol["attacks"]),
    }
