"""The arena: every row hardens the same model for the same time, and all are measured on the same inputs."""

import logging
import shlex
import time as clock
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from assay.core import environment
from assay.core.environment import version_of
from assay.core.errors import AssayError, Interrupted, UsageError
from assay.core.places import runs_in
from assay.core.specs import written
from assay.core.units import budget, seconds
from assay.engines.arena_columns import STATIC, Heading, groups, headings, told_of
from assay.engines.arena_folder import FORMAT, RUNS, Folder, contents_of
from assay.engines.arena_row import NONE, USUAL, Contest, Row, made_by, net_of, row_of, shared_by_trainers
from assay.engines.arena_standing import Standing
from assay.engines.evaluate import evaluate
from assay.engines.evaluation import Evaluation
from assay.subjects.bench import Data, fitted, with_validation
from assay.subjects.data.load import load_splits
from assay.subjects.sources.load import load_target
from assay.subjects.target import Target

log = logging.getLogger("assay")

Progress = Callable[[Mapping[str, Any]], None]
TEST, VAL = "test", "val"
TIME = "60s"  # of each row, where nothing is said
COUNTED = "what fuzzing and training take; not what measuring does, on the validation part or the test part"


@dataclass(frozen=True, slots=True)
class Arena:
    """An arena as it stands: its protocol, a record a row and seed, those not run, and who stands where."""

    protocol: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    not_run: Sequence[Mapping[str, Any]] = field(default=())
    place: str = ""

    @staticmethod
    def read(place: str | Path) -> "Arena":
        """From its folder, or from a file with its JSON."""
        return Arena(**contents_of(place), place=str(place))

    def standing(self) -> Standing:
        """The table: means over seeds, and what is told apart."""
        return Standing.of(self.protocol, self.rows)

    def to_json(self) -> dict[str, Any]:
        return {
            "protocol": dict(self.protocol),
            "rows": list(self.rows),
            "not_run": list(self.not_run),
            "table": self.standing().to_json(),
        }

    def __repr__(self) -> str:
        rows = dict.fromkeys(str(row["row"]) for row in self.rows)
        return f"<arena of {len(rows)} rows ({', '.join(rows)}) on {self.protocol['data']}>"


def arena(
    model: str,
    data: str = "",
    *,
    out: str | Path = "arena",
    eps: str | float | None = None,
    norm: str | None = None,
    time: str | float | None = None,
    passes: int | None = None,
    rows: Sequence[str] = (),
    seeds: int = 1,
    columns: str = "",
    cases: int = 1000,
    part: str = TEST,
    val_cases: int = 1000,
    trainers: str = "",
    size: str = "",
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    device: str = "auto",
    amp: bool = False,
    deterministic: bool = False,
    progress: Progress | None = None,
) -> Arena:
    """Harden a model by every row for the same ``time`` (60s), and measure all that comes of it by the same columns.

    In place of the time all may have as many ``passes``: inputs that nets answer and take gradients of.

    A row is a recipe or a trainer, with parameters: ``robot``, ``trades(beta=6)``; the usual ones where none is named,
    and always ``none``, the model as it is. Each is done with the seeds 0, 1, … and kept in a file in ``out``: rows
    that are there are not done again, a call that was stopped goes on, and rows of another protocol are refused.
    Calls in several processes with one ``out`` share the rows among them.
    ``trainers``, as "batch=128, lr=5e-3", is what every row that is a trainer has unless it says otherwise: so they
    differ by what they do and not by how well they are set. A recipe keeps its own.
    Columns are attacks and suites on the first ``cases`` of the test part, see docs/arena.md. To choose among rows take
    ``part="val"``, and look at the test part when that is done.

    With no ``data``, ``model`` is the folder of an arena, or a file with its JSON, which is only read.
    """
    if not data:
        return Arena.read(model)
    if eps is None:
        raise UsageError("an arena needs the ball that models are hardened in and measured by: give --eps, such as 0.1")
    if seeds < 1 or cases < 1:
        raise UsageError(f"seeds {seeds} and cases {cases} must be at least 1")
    if part not in (TEST, VAL):
        raise UsageError(f"an arena measures on the {TEST} part, or, to choose among rows, on {VAL}; got {part!r}")
    chosen = [row_of(text) for text in dict.fromkeys((NONE, *(rows or USUAL)))]
    how: dict[str, Any] = {"size": size, "mean": mean, "std": std, "device": device}
    how |= {"amp": amp, "deterministic": deterministic}
    contest = Contest(model, data, eps, norm, *_spending(time, passes), val_cases, shared_by_trainers(trainers), how)
    original, inputs, found = _settled(contest, columns, cases, part)
    folder, protocol = Folder(Path(out)), _protocol(contest, original, inputs, part, found)
    folder.open(protocol)
    with runs_in(folder.path / RUNS):
        work = _Work(contest, folder, protocol, original, inputs, found, progress or (lambda _: None))
        for seed in range(seeds):
            for row in chosen:
                if row.kind != NONE or seed == 0:  # the model as it is is the same for every seed
                    work.row(row, seed, asked=bool(rows))
    return Arena.read(folder.path)


def _spending(time: str | float | None, passes: int | None) -> tuple[float | None, int | None]:
    """What each row may spend: seconds or passes, never both."""
    if passes is None:
        return seconds(TIME if time is None else time), None
    if time is not None:
        raise UsageError("rows have the same --time or the same --passes; give one of them")
    if passes < 1:
        raise UsageError(f"passes must be at least 1, got {passes}")
    return None, passes


def _settled(contest: Contest, columns: str, cases: int, part: str) -> tuple[Target, Data, tuple[Heading, ...]]:
    """The model that all start from, the inputs that all are measured on, and the columns."""
    splits = with_validation(load_splits(contest.data, size=contest.how["size"], like=contest.model))
    if splits.test is None:  # hardenings ask for one also where they do not look at it
        raise UsageError(f"{splits.name} has no test part to measure on; give a data set with train and test parts")
    whole = splits.part(part)
    original = _loaded(contest.model, whole, contest.how)
    inputs = fitted(original, whole)
    found = headings(columns, contest.eps, contest.norm or "linf", original.spec.shape)
    return original, inputs[:cases] if cases < len(inputs) else inputs, found


def _loaded(model: str, data: Data, how: Mapping[str, Any]) -> Target:
    return load_target(model, data=data, device=how["device"], mean=how["mean"], std=how["std"])


def _protocol(contest: Contest, original: Target, inputs: Data, part: str, found: Sequence[Heading]) -> dict[str, Any]:
    """What all numbers of the arena have in common."""
    return {
        "format": FORMAT,
        "model": contest.model,
        "model_fingerprint": original.fingerprint(),
        "data": contest.data,
        **({} if part == TEST else {"part": part}),
        f"{part}_fingerprint": inputs.fingerprint(),
        "n": len(inputs),
        "norm": contest.norm or "linf",
        "eps": budget(contest.eps),
        "eps_text": str(contest.eps),
        **({"passes": contest.passes} if contest.time is None else {"time": contest.time}),
        "counted": COUNTED,
        **({"amp": True} if contest.how["amp"] else {}),
        "val_cases": contest.val_cases,
        **({"trainers": dict(contest.trainers)} if contest.trainers else {}),
        "columns": {heading.name: heading.to_json() for heading in found},
        "versions": {"assay": version_of("assay"), "torch": torch.__version__},
    }


@dataclass(frozen=True, slots=True)
class _Work:
    """An arena under way."""

    contest: Contest
    folder: Folder
    protocol: Mapping[str, Any]
    original: Target
    data: Data
    headings: tuple[Heading, ...]
    progress: Progress

    def row(self, row: Row, seed: int, *, asked: bool) -> None:
        """One row with one seed, unless it is there or another process makes it; where it cannot be run that is kept,
        and raised if ``asked``.
        """
        with self.folder.claimed(row.slug, seed) as ours:
            if not ours:
                log.warning("row %s, seed %d, is being made by another process; it is left to that", row.text, seed)
                return
            if self.folder.finished(row.slug, seed) is not None:
                return
            try:
                self._do(row, seed)
            except Interrupted:
                raise
            except AssayError as error:
                self.folder.leave_out(row.slug, seed, row.text, str(error))
                if asked:
                    raise
                log.warning("row %s is not run: %s", row.text, error)

    def _do(self, row: Row, seed: int) -> None:
        state = self.folder.state(row.slug, seed)
        if "made" not in state:
            told = self._teller(row, seed)
            made = made_by(row, seed, self.contest, told)
            state = {"made": made, "columns": {}}
            self.folder.keep(row.slug, seed, state)
        left = [g for g in groups(self.headings) if any(heading.name not in state["columns"] for heading in g)]
        target = self._target(state["made"]) if left else self.original
        for group in left:
            began = clock.monotonic()
            result = self._evaluated(group, target, self._teller(row, seed))
            for heading in group:
                state["columns"][heading.name] = told_of(heading, result)
            state["columns"][group[0].name]["seconds"] = round(clock.monotonic() - began, 2)
            self.folder.keep(row.slug, seed, state)
        self.folder.finish(row.slug, seed, self._record(row, seed, state))

    def _evaluated(self, group: Sequence[Heading], target: Target, tell: Progress) -> Evaluation:
        """One evaluation for all of these headings; attacks have the same seed for every row."""
        one = group[0]
        static = any(heading.kind == STATIC for heading in group)
        names = ", ".join(heading.name for heading in group)
        return evaluate(
            target,
            self.data if one.cases is None or one.cases >= len(self.data) else self.data[: one.cases],
            suite=one.suite,
            eps=one.eps,
            norm=one.norm,
            static_from=self.original if static else None,
            deterministic=self.contest.how["deterministic"],
            progress=lambda numbers: tell({"phase": "columns", "column": names, **numbers}),
        )

    def _target(self, made: Mapping[str, Any]) -> Target:
        """What a row made of the model, wherever the folder lies now."""
        if "weights" not in made:
            return self.original
        model = f"{net_of(self.contest.model)}@{self.folder.path / made['weights']}"
        return _loaded(model, self.data, self.contest.how)

    def _teller(self, row: Row, seed: int) -> Progress:
        return lambda numbers: self.progress({"row": row.text, "seed": seed, **numbers})

    def _record(self, row: Row, seed: int, state: Mapping[str, Any]) -> dict[str, Any]:
        """All that is known of a row, its protocol too: a file that stands for itself."""
        columns = {heading.name: state["columns"][heading.name] for heading in self.headings}
        return {
            "format": FORMAT,
            "row": row.text,
            "kind": row.kind,
            "seed": seed,
            "made": state["made"],
            "columns": columns,
            "protocol": dict(self.protocol),
            "command": self._command(row, seed),
            "environment": environment.describe(),
        }

    def _command(self, row: Row, seed: int) -> str:
        """The line that makes this row, and those of the seeds before it."""
        told, how = self.contest, self.contest.how
        words = ["assay", "arena", told.model, "--data", told.data, "--eps", str(told.eps)]
        words += ["--norm", told.norm] if told.norm else []
        words += ["--passes", str(told.passes)] if told.time is None else ["--time", f"{told.time:g}s"]
        words += ["--row", row.text, "--seeds", str(seed + 1)]
        words += ["--columns", ", ".join(_column_text(heading) for heading in self.headings)]
        words += ["--cases", str(self.protocol["n"]), "--val-cases", str(told.val_cases)]
        words += ["--part", self.protocol["part"]] if "part" in self.protocol else []
        shared = ", ".join(f"{name}={written(value)}" for name, value in told.trainers.items())
        words += ["--trainers", shared] if shared else []
        words += ["--size", how["size"]] if how["size"] else []
        for name in ("mean", "std"):
            words += [f"--{name}", ",".join(f"{v:g}" for v in how[name])] if how[name] else []
        words += [f"--{name}" for name in ("amp", "deterministic") if how[name]]
        return shlex.join(words)


def _column_text(heading: Heading) -> str:
    return heading.name if heading.cases is None else f"{heading.name}[:{heading.cases}]"
