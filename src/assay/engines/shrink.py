"""Shrinking a run's failures, kept in the run beside the failures themselves."""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.core import store
from assay.core.cases import Cases
from assay.core.deadline import limited
from assay.core.errors import BudgetSpent, NothingToTest, UsageError
from assay.core.files import sha256
from assay.core.registry import Bound
from assay.core.shards import decode, encode
from assay.core.shrink import passes_of
from assay.core.specs import python_file
from assay.core.store import Store
from assay.core.units import count
from assay.engines.asking import asked_of
from assay.engines.compared import oracle_of, roles_of, siblings_given
from assay.engines.found import load_failures
from assay.engines.kinds import SAME_KIND, one_of_each
from assay.engines.run_target import Deferred, Model, target_of
from assay.engines.select import load_selection
from assay.engines.session import session
from assay.engines.shrinkings import BEYOND_K, SIZES, Shrunk, kept, lines_of, scores_in
from assay.engines.shrunk import shrunk
from assay.engines.stop import Stopper
from assay.engines.stored import fails_in, kind_of
from assay.subjects.bench import Bench

BLOCK = {"cpu": 256, "cuda": 2048}  # cases shrunk and committed together
KEPT = ("failing", "minimal", "questions", "pred", "ssim", "eight_bit")

Progress = Callable[[Mapping[str, Any]], None]


@limited
def shrink(
    run: str | Path,
    *,
    by: str = "auto",
    k: int | str | None = None,
    distinct: bool = False,
    selected: int | None = None,
    any_failure: bool = False,
    budget: int | None = None,
    model: Model | None = None,
    siblings: Sequence[Model] = (),
    device: str = "auto",
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    queries: int | None = None,
    ask: str = "",
    call_timeout: str | float | None = None,
    progress: Progress | None = None,
) -> Shrunk:
    """The failures of a fuzzing run with as little changed of their seeds as it takes to fail.

    ``by`` are passes, done one after another: ``blocks(side=4)``, ``pixels``, ``channels``, ``entries`` take parts of
    the change back, ``line(steps=10)`` makes all of it smaller, ``eight_bit`` lays it on the levels of such images;
    ``auto`` is 8 bits, blocks, pixels, line, 8 bits, or entries and line where inputs are no images. ``distinct`` takes
    one failure of each kind, the one with the smallest change, ``k`` the first so many failures, or a share such as
    ``10%``, ``selected`` those of a selection that ``assay select`` made. What fails is said by the recipe's own
    oracle, and the wrong class stays what it was, unless ``any_failure`` will do. ``budget`` is the most questions of
    a case. The model is the run's own unless another is given, and so are the ``siblings`` of a recipe that compares
    models. The result is kept in the run; the same call again reads it from there, or goes on where it was stopped.

    A model that only answers is sent at most ``queries`` inputs, those of the run so far among them, and asked as
    ``ask`` says; both are the run's own unless given. Where the budget ends first, the blocks before are there and
    ``complete`` is False; one that is spent before the first block raises ``BudgetSpent``. A call of the model that
    takes longer than ``call_timeout`` ends it, and what was committed before is kept.
    """
    if k is not None:
        count(k, 100, "-k")  # before the work, not after it
    with store.continued(store.find_run(run)) as folder, session():
        _check_kind(folder)
        every = load_failures(folder)
        rows = torch.arange(len(every)) if selected is None else _selected(folder, selected)
        rows, left_out = _chosen(folder, every, rows, k, distinct=distinct)
        oracle = oracle_of(folder)
        passes = passes_of(by, tuple(every.x.shape[1:]))
        loading: dict[str, Any] = {"device": device, "mean": mean, "std": std}
        target = target_of(folder, every, model, **loading, queries=queries, ask=ask)
        others = siblings_given(folder, every, siblings, **loading)
        asked = {
            "by": ", ".join(each.text for each in passes),
            "rows": sha256(rows.numpy().tobytes())[:16],
            "any_failure": any_failure,
            "budget": budget,
            "oracle": oracle.text,
            "code": _code(oracle),
            "model": "" if model is None else target.fingerprint(),
            "others": [net.fingerprint() for net in others],
        }
        number = _number(folder, asked)
        work = _Work(folder, every, rows, number, asked, progress or (lambda _: None))
        new = work.done < len(rows)
        if not new:
            return replace(kept(folder, number, every), left_out=left_out)
        net = target.target if isinstance(target, Deferred) else target
        try:
            work.go(Bench(net, roles_of(folder, oracle, every, net, others, **loading)), oracle)
        except BudgetSpent:
            if not work.done:
                raise
        made = kept(folder, number, every, time.monotonic() - work.began)
        return replace(made, queries=asked_of(net), left_out=left_out)


def _chosen(
    run: Store, every: Cases, rows: Tensor, k: int | str | None, *, distinct: bool
) -> tuple[Tensor, dict[str, int]]:
    """Which of these rows are shrunk, and how many are left out for which reason."""
    counts = {}
    if distinct:
        before = len(rows)
        rows = rows[fails_in(run, every[rows])]  # what does not fail is of no kind
        if not len(rows):
            raise NothingToTest(f"no case of run {run.name} fails: nothing to shrink")
        rows = rows[one_of_each(every[rows])]
        counts[SAME_KIND] = before - len(rows)
    if k is not None:
        counts[BEYOND_K] = max(0, len(rows) - count(k, len(rows), "-k"))
        rows = rows[: count(k, len(rows), "-k")]
    return rows, {reason: number for reason, number in counts.items() if number}


class _Work:
    """A shrinking under way, block by block."""

    def __init__(
        self, run: Store, every: Cases, rows: Tensor, number: int, asked: Mapping[str, Any], progress: Progress
    ) -> None:
        self.run, self.every, self.rows, self.number = run, every, rows, number
        self.asked, self.progress, self.began = asked, progress, time.monotonic()
        self.done = sum(int(line.meta["cases"]) for line in lines_of(run, number))

    def go(self, bench: Bench, oracle: Bound) -> None:
        """Shrink what no commit holds yet; the first Ctrl-C ends after the block under way."""
        with Stopper(None) as stop:
            self._go(bench, oracle, stop)

    def _go(self, bench: Bench, oracle: Bound, stop: Stopper) -> None:
        size = BLOCK.get(bench.target.device.type, BLOCK["cpu"])
        questions = 0
        while self.done < len(self.rows):
            rows = self.rows[self.done : self.done + size]

            def tell(more: int) -> None:
                nonlocal questions
                questions += more
                numbers = {"done": self.done, "of": len(self.rows), "questions": questions}
                self.progress(numbers | {"seconds": time.monotonic() - self.began})

            given = {name: self.asked[name] for name in ("by", "any_failure", "budget")}
            made = shrunk(bench, self.every[rows].drop(*scores_in(self.run)), oracle, **given, watch=tell)
            columns = {name: made.info[name] for name in (*KEPT, *SIZES) if name in made.info}
            self.run.commit(
                {_file(self.number, self.done): encode({"row": rows, "x": made.x, **columns})},
                kind="shrink",
                number=self.number,
                cases=len(rows),
                of=len(self.rows),
                asked=self.asked,
            )
            self.done += len(rows)
            stop.end()


def _number(run: Store, asked: Mapping[str, Any]) -> int:
    """The number of the shrinking that was asked for in this way, or of a new one."""
    done = {int(line.meta["number"]): line.meta["asked"] for line in run.commits("shrink")}
    return next((number for number, told in done.items() if told == asked), max(done, default=0) + 1)


def _file(number: int, start: int) -> str:
    return f"state/shrunk-{number:03d}-{start:06d}.safetensors"


def _check_kind(run: Store) -> None:
    """Refuse what holds no failures with their seeds and one oracle."""
    kind = kind_of(run)
    if kind == "harden" and not any(run.path.glob("round-*")):
        raise UsageError(f"run {run.name} is a hardening whose recipe finds no cases, it trains: nothing to shrink")
    if kind == "harden":
        raise UsageError(
            f"run {run.name} is a hardening, whose rounds each tested a model of their own; "
            f"shrink one of them: assay shrink {run.path / 'round-001'}"
        )
    if kind != "fuzz":
        raise UsageError(
            f"run {run.name} is of kind {kind or 'unknown'} and keeps no seeds with its cases; "
            "what is shrunk are the failures of assay fuzz"
        )


def _selected(run: Store, number: int) -> Tensor:
    """The rows of a selection among all failures."""
    rows: Tensor = decode(run.file(load_selection(run, number).file))["rows"]
    return rows


def _code(oracle: Bound) -> str:
    """The digest of the file of the user's own that the oracle lies in."""
    place = python_file(oracle.entry.name)
    return "" if place is None else _digest(place[0].resolve())


@functools.cache  # as its code, which is loaded once
def _digest(file: Path) -> str:
    return sha256(file.read_bytes())
