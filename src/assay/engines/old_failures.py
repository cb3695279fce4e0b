"""The failures that a run holds, each once, whatever kind of run it is."""

from collections.abc import Iterator

import torch

from assay.core import store
from assay.core.cases import Cases
from assay.core.errors import NothingToTest, UsageError
from assay.core.ids import case_ids
from assay.core.store import Store
from assay.engines.found import as_cases
from assay.engines.lanes import NONFINITE
from assay.engines.shrinkings import load_shrunk
from assay.engines.stored import failing, keeps_all, kind_of, round_folders, stored_cases

KINDS = ("fuzz", "eval", "harden")


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
    if keeps_all(run):  # a pool, of which some fail
        cases = cases[(cases.info["pred"] != cases.y) | (cases.info["kind"] == NONFINITE)]
    yield cases


def _flaky(run: Store) -> Iterator[Cases]:
    """What a run set aside because it did not fail again."""
    folders = [store.read(path) for _, path in round_folders(run.path)] if kind_of(run) == "harden" else [run]
    for folder in folders:
        for line in folder.commits("fuzz"):
            yield from (as_cases(folder, name) for name in line.files if name.startswith("flaky/"))


def _hint(run: Store) -> str:
    count = sum(len(part) for part in _flaky(run))
    return f"; {count} that are flaky lie apart: --flaky" if count else ""
