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
from assay.engines.kinds import one_of_each
from assay.engines.select import load_selection, with_seeds
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


def old_failures(
    run: Store, *, flaky: bool = False, shrunk: int | None = None, selected: int | None = None, distinct: bool = False
) -> Cases:
    """The failures of a fuzzing run or of every round of a hardening, or the examples that fooled an evaluated model.

    With ``flaky`` those too that did not fail again when they were found; ``shrunk`` takes those of that shrinking,
    ``selected`` those of that selection, in its order; ``distinct`` leaves one of each kind, that of the smallest
    change.
    """
    kind = kind_of(run)
    if not run.lines:
        raise UsageError(f"{run.path} holds no run that can be read")
    if kind not in KINDS:
        raise UsageError(f"run {run.name} is of kind {kind or 'unknown'} and keeps no failures to replay")
    if flaky and (shrunk is not None or selected is not None):
        raise UsageError("what is flaky is neither shrunk nor selected; give --flaky or one of these, not both")
    if shrunk is not None and (selected is not None or distinct):
        raise UsageError(
            "which failures are shrunk is said to assay shrink; give --shrunk alone, not with --selected or --distinct"
        )
    if shrunk is not None:
        parts = [load_shrunk(run, shrunk).cases]
    elif selected is not None:
        parts = [_failing_of(run, load_selection(run, selected).cases)]
    else:
        parts = [*_failing(run), *(_flaky(run) if flaky else ())]
    cases = Cases.cat(parts) if parts else None
    if cases is None or not len(cases):
        raise NothingToTest(f"run {run.name} holds no failures{'' if flaky or shrunk or selected else _hint(run)}")
    first: dict[str, int] = {}
    for row, name in enumerate(case_ids(cases)):
        first.setdefault(name, row)
    cases = cases[torch.tensor(list(first.values()))]
    return cases[one_of_each(_with_seeds(run, cases)).sort().values] if distinct else cases


def _with_seeds(run: Store, cases: Cases) -> Cases:
    return cases if "seed_x" in cases.info else with_seeds(run, cases, None)


def _failing(run: Store) -> Iterator[Cases]:
    try:
        cases = stored_cases(run)
    except NothingToTest:
        return
    yield _failing_of(run, cases)


def _failing_of(run: Store, cases: Cases) -> Cases:
    cases = failing(cases)
    return cases[fails_in(run, cases)]


def _flaky(run: Store) -> Iterator[Cases]:
    """What a run set aside because it did not fail again."""
    folders = [store.read(path) for _, path in round_folders(run.path)] if kind_of(run) == "harden" else [run]
    for folder in folders:
        for line in folder.commits("fuzz"):
            yield from (as_cases(folder, name) for name in line.files if name.startswith("flaky/"))


def _hint(run: Store) -> str:
    count = sum(len(part) for part in _flaky(run))
    return f"; {count} that are flaky lie apart: --flaky" if count else ""
