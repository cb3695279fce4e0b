"""Old failures first: those of earlier runs, asked of the model that is to be evaluated, and kept with its numbers."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.core import store
from assay.core.cases import UNLABELLED, Cases
from assay.core.errors import NothingToTest, UsageError
from assay.core.files import sha256
from assay.core.ids import case_ids
from assay.core.journal import Line
from assay.core.places import known_as
from assay.core.remote import address
from assay.core.store import Store
from assay.engines.compared import oracle_of, roles_of
from assay.engines.old_failures import old_failures, read_run
from assay.engines.replay import REPEATS, VERDICTS, Failure, Judge, Progress, Replayed, by_label, fitted_to
from assay.subjects.target import Target

log = logging.getLogger("assay")

BLOCK = 256  # failures asked and committed together
KIND = "regress"


@dataclass(frozen=True, slots=True)
class Regressed:
    """The failures of earlier runs and what became of them; no number of the evaluation counts them."""

    runs: tuple[Replayed, ...]

    def counts(self) -> dict[str, int]:
        each = [run.counts() for run in self.runs]
        return {name: sum(counts[name] for counts in each) for name in each[0]}

    def to_json(self) -> dict[str, Any]:
        return {"of": sum(map(len, self.runs)), **self.counts(), "runs": [run.to_json() for run in self.runs]}


@dataclass(frozen=True, slots=True)
class Regress:
    """The runs whose failures come first, each once; ``loading`` says how other models that they need are loaded."""

    runs: tuple[str, ...]
    loading: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(runs: Sequence[str | Path], save: str | None, *, fresh: bool, **loading: Any) -> "Regress":
        """Refused where a run is not there, unless the evaluation was begun and may know its failures already."""
        if isinstance(runs, (str, Path)):
            raise UsageError(f"regress is a list of runs, got {str(runs)!r}")
        texts = tuple(dict.fromkeys(map(str, runs)))
        own = None if save is None or fresh else store.place(save)
        for text in texts:
            places = [path.resolve() for path in (Path(text), store.runs_root() / text)]
            places += [] if address(text) is None else [store.place(text)]
            if own is not None and own.resolve() in places:
                raise UsageError(f"--regress {text} is the run that this evaluation is kept in; name an earlier one")
            if own is None or not (own / "journal.jsonl").is_file():
                _failures(text)
        return Regress(texts, loading)

    def config(self) -> dict[str, dict[str, Any]]:
        """What it adds to the configuration of a run."""
        return {KIND: {"runs": list(self.runs), "repeats": REPEATS}} if self.runs else {}

    def all(self, target: Target, model: str, keep: Store | None, progress: Progress) -> Regressed | None:
        """Every run's failures asked, those that ``keep`` holds already read from there; None where there is no run."""
        told = tuple(
            _Work(number, text, target, model, keep, progress).go(self.loading)
            for number, text in enumerate(self.runs, 1)
        )
        return Regressed(told) if told else None


@dataclass(frozen=True, slots=True)
class _Work:
    """The failures of one run, block by block."""

    number: int
    text: str
    target: Target
    model: str
    keep: Store | None
    progress: Progress

    def go(self, loading: Mapping[str, Any]) -> Replayed:
        lines = [] if self.keep is None else [x for x in self.keep.commits(KIND) if x.meta["number"] == self.number]
        known = [Failure(**row) for line in lines for row in _kept(self.keep, line)]
        if lines and len(known) == lines[0].meta["of"]:
            return self._told(lines[0].meta, known)
        run, cases = _failures(self.text)
        if cases is None:
            return self._put(self._told({"run": known_as(run.path), "of": 0, "oracle": "", "ids": ""}, []), 0, "")
        if lines:  # a run only grows: those that it had when this began are its first
            cases = cases[: lines[0].meta["of"]]
        ids = sha256("".join(case_ids(cases)).encode())[:16]
        if lines and lines[0].meta["ids"] != ids:
            raise UsageError(
                f"run {run.name} no longer holds the failures that this evaluation began with; start anew with --fresh"
            )
        log.info("%d failures of run %s come first, each asked %d times", len(cases), run.name, REPEATS)
        cases = fitted_to(self.target, run, cases)
        judge = _judge(run, cases, self.target, loading)
        facts = {"run": known_as(run.path), "of": len(cases), "oracle": judge.oracle.text}
        told = self._told(facts, known)
        for start in range(len(known), len(cases), BLOCK):
            for failure in judge.each(cases[start : start + BLOCK]):
                known.append(failure)
                self.progress({"done": len(known), "of": len(cases), "attack": f"failures of run {run.name}"})
            told = self._put(self._told(facts, known), start, ids)
        return told

    def _told(self, facts: Mapping[str, Any], failures: Sequence[Failure]) -> Replayed:
        return Replayed(facts["run"], self.model, facts["oracle"], REPEATS, facts["of"], tuple(failures))

    def _put(self, told: Replayed, start: int, ids: str) -> Replayed:
        """Put the failures from ``start`` on down for good."""
        if self.keep is not None:
            rows = told.to_json()["failures"][start:]
            name = f"state/{KIND}-{self.number:03d}-{start:06d}.json"
            facts = {"run": told.run, "oracle": told.oracle, "of": told.of, "ids": ids, "cases": len(rows)}
            files = {name: json.dumps(rows, allow_nan=False).encode()} if rows else {}
            self.keep.commit(files, kind=KIND, number=self.number, **facts)
        return told


def verdicts_in(run: Store) -> list[dict[str, Any]]:
    """What a saved evaluation keeps of old failures: for each run they are of, how many got which verdict."""
    told: dict[int, dict[str, Any]] = {}
    for line in run.commits(KIND):
        none = dict.fromkeys(VERDICTS.values(), 0)
        try:
            facts = {"run": str(line.meta["run"]), "of": int(line.meta["of"])}
            one = told.setdefault(int(line.meta["number"]), facts | none)
            for row in _kept(run, line):
                one[VERDICTS[row["verdict"]]] += 1
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"what run {run.name} says of old failures is not Assay's: {error!r:.60}") from error
    return [one | {"complete": sum(one[name] for name in VERDICTS.values()) == one["of"]} for one in told.values()]


def _kept(run: Store | None, line: Line) -> Iterator[dict[str, Any]]:
    """The failures of a commit, as they were put down."""
    assert run is not None  # whose line it is
    for name in line.files:
        yield from json.loads(run.file(name))


def _failures(text: str) -> tuple[Store, Cases | None]:
    """The run of that name and its failures; None where it holds none."""
    run = read_run(text)
    try:
        return run, old_failures(run)
    except NothingToTest:
        return run, None


def _judge(run: Store, cases: Cases, target: Target, loading: Mapping[str, Any]) -> Judge:
    """By the run's own oracle where that is possible here, else by the label."""
    try:
        oracle = oracle_of(run)
        return Judge(target, oracle, roles_of(run, oracle, cases, target, (), **loading))
    except UsageError as error:
        unlabelled = int((cases.y == UNLABELLED).sum())
        if unlabelled:
            raise UsageError(
                f"{unlabelled} failures of run {run.name} have no label, and its oracle cannot be asked: {error}"
            ) from error
        log.warning("the failures of run %s are judged by their labels: %s", run.name, error)
        return Judge(target, by_label(), {})
