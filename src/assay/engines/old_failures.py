"""The failures that a run holds, each once, whatever kind of run it is."""

import logging
from collections.abc import Iterator
from pathlib import Path

import torch

from assay.core import store
from assay.core.cases import Cases
from assay.core.errors import NothingToTest, UsageError
from assay.core.ids import case_ids
from assay.core.store import Store
from assay.engines.found import as_cases
from assay.engines.shrinkings import load_shrunk
from assay.engines.stored import failing, fails_in, kind_of, round_folders, stored_cases

log = logging.getLogger("assay")

KINDS = ("fuzz", "eval", "harden")


def read_run(run: str | Path) -> Store:
    """A run to read failures from, by name or folder; what of it is damaged is told."""
    folder = store.read(store.find_run(run))
    warn_of_damage(folder)
    return folder


def warn_of_damage(run: Store) -> None:
    """Say what of a run is damaged."""
    for what in run.damage:
        log.warning("run %s: %s; what comes after it is left out", run.name, what)


def old_failures(run: Store, *, flaky: bool = False, shrunk: int | None = None) -> Cases:
    """The failures of a fuzzing run or of every round of a hardening, or the examples that fooled an evaluated model.

    With ``flaky`` those too that did not fail again when they were found; ``shrunk`` takes those of that shrinking.
    """
    kind = kind_of(run)
    if not run.lines:
        raise UsageError(f"{run.path} holds no run that can be read")
    if kind not in KINDS:
        raise UsageError(f"run {run.name} is of kind {kind or 'unknown'} and keeps no failures to replay")
    if shrunk is not None and flaky:
        raise UsageError("what is flaky is not shrunk; give --shrunk or --flaky, not both")
    if shrunk is not None:
        parts = [load_shrunk(run, shrunk).cases]
    else:
        parts = [*_failing(run), *(_flaky(run) if flaky else ())]
    cases = Cases.cat(parts) if parts else None
    if cases is None or not len(cases):
        raise NothingToTest(f"run {run.name} holds no failures{'' if flaky or shrunk else _hint(run)}")
    first: dict[str, int] = {}
    for row, name in enumerate(case_ids(cases)):
        first.setdefault(name, row)
    return cases[torch.tensor(list(first.values()))]


def _failing(run: Store) -> Iterator[Cases]:
    try:
        cases = failing(stored_cases(run))
    except NothingToTest:
        return
    yield cases[fails_in(run, cases)]


def _flaky(run: Store) -> Iterator[Cases]:
    """What a run set aside because it did not fail again."""
    folders = [store.read(path) for _, path in round_folders(run.path)] if kind_of(run) == "harden" else [run]
    for folder in folders:
        for line in folder.commits("fuzz"):
            yield from (as_cases(folder, name) for name in line.files if name.startswith("flaky/"))


def _hint(run: Store) -> str:
    count = sum(len(part) for part in _flaky(run))
    return f"; {count} that are flaky lie apart: --flaky" if count else ""
