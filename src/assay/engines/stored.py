"""What a run holds: its cases, whatever kind of run it is, and the names of its classes."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from assay.core import journal, store, trust
from assay.core.cases import Cases
from assay.core.errors import NothingToTest, UsageError
from assay.core.real import check_real
from assay.core.store import Store
from assay.engines.blocks import load_examples
from assay.engines.found import load_failures
from assay.engines.lanes import NONFINITE
from assay.engines.saved import classes_in

# What an identity must be for any work on the run: a journal from elsewhere may say anything.
_KINDS: tuple[tuple[str, str, type], ...] = (
    ("run", "kind", str),
    ("target", "model", str),
    ("target", "classes", list),
    ("target", "with", list),
    ("target", "mean", list),
    ("target", "std", list),
    ("data", "spec", str),
    ("recipe", "name", str),
    ("recipe", "oracle", str),
    ("recipe", "score", list),
)
EVERY = "every"  # the oracle of recipes that keep what does not fail too


def stored_cases(run: Store) -> Cases:
    """The failures of a fuzzing run or of every round of a hardening, or all examples of a saved evaluation."""
    if any(run.commits("eval")):
        return load_examples(run.path)
    return _of_rounds(run) if kind_of(run) == "harden" else load_failures(run)


def _of_rounds(run: Store) -> Cases:
    """The failures of all rounds, in order; the column ``round`` says which one found them."""
    found = {int(line.meta["round"]): int(line.meta["counts"].get("found", 0)) for line in run.commits("round")}
    parts = []
    for number, path in round_folders(run.path):
        folder = store.read(path)
        there = folder.totals("fuzz").get("failures", 0)
        if there != found.get(number, there):  # a round still under way is in no commit
            raise UsageError(f"{path} holds {there} failures, round {number} had {found[number]}; it is damaged")
        if there:
            cases = load_failures(folder)
            parts.append(cases.note(round=torch.full((len(cases),), number)))
    if not parts:
        why = ": its recipe finds none, it trains" if only_trains(run) else ""
        raise NothingToTest(f"run {run.name} holds no failures{why}")
    return Cases.cat(parts)


def round_folders(run: Path) -> Iterator[tuple[int, Path]]:
    """The rounds of a hardening that have cases of their own, by number."""
    rounds = ((round_number(path), path) for path in run.iterdir() if (path / "journal.jsonl").is_file())
    return iter(sorted((number, path) for number, path in rounds if number))


def round_number(path: Path) -> int:
    """The number of the round whose folder that is, 0 where it is none."""
    match = re.fullmatch(r"round-(\d+)", path.name)
    return int(match[1]) if match else 0


class Pool(NamedTuple):
    """The rows of a run's cases that are picked from, and how many were left out for which reason."""

    rows: Tensor
    dropped: dict[str, int]


def pool_of(run: Store, cases: Cases, *, every: bool = False, static: bool = False) -> Pool:
    """Cases that fail and were made on the model itself; ``every`` takes the others too, ``static`` only those that
    an evaluation made on another model.
    """
    # Where a model is sure and right its slope vanishes as it does on a strong failure: scores rank failures only.
    fails = cases.info["success"].bool() if "success" in cases.info else torch.ones(len(cases), dtype=torch.bool)
    other = cases.info["static"].bool() if "static" in cases.info else torch.zeros_like(fails)
    column = other if static else ~other
    kept = column if every else column & fails
    counts = {"white-box" if static else "static": int((~column).sum()), "not failing": int((column & ~kept).sum())}
    if not bool(kept.any()):
        what = f"{'static ' if static else ''}{'examples' if every else 'failing cases'}"
        raise NothingToTest(f"run {run.name} holds no {what} among its {len(cases)}; see --all and --static")
    return Pool(kept.nonzero().flatten(), {reason: count for reason, count in counts.items() if count})


def identity_of(run: Store) -> dict[str, Any]:
    """The configuration a run began with, from its journal, which is checked; ``campaign.toml`` may be lost."""
    told = dict(run.lines[0].meta.get("identity", {})) if run.lines else {}
    for table, key, kind in _KINDS:
        value = told.get(table, {}).get(key, kind())
        listed = not isinstance(value, list) or key in ("mean", "std") or all(isinstance(each, str) for each in value)
        if not isinstance(value, kind) or not listed:
            raise UsageError(f"the journal of run {run.name} is not one that Assay wrote: {key} is {value!r:.60}")
    return told


def named_by_run(run: Store) -> AbstractContextManager[None]:
    """For the time of loading what the run names: code and addresses only where the run is this user's own."""
    begins = run.lines[:1]
    if round_number(run.path.resolve()):  # what a round tested is named by the hardening around it
        check_real(run.path.resolve().parent)
        begins += journal.read(run.path.resolve().parent / "journal.jsonl")[0][:1]
    return trust.named_by(run.name, begins)


def kind_of(run: Store) -> str:
    """The kind of work a run was made for: fuzz, eval, harden."""
    return str(identity_of(run).get("run", {}).get("kind", ""))


def only_trains(run: Store) -> bool:
    """Whether it is a hardening whose recipe finds no cases."""
    return kind_of(run) == "harden" and "mutate" not in identity_of(run).get("recipe", {})


def keeps_all(run: Store) -> bool:
    """Whether its recipe keeps every case, so that what a fuzzing run calls failures is a pool."""
    return bool(identity_of(run).get("recipe", {}).get("oracle") == EVERY)


def fails_in(run: Store, cases: Cases) -> Tensor:
    """Which of these cases of a fuzzing run fail, (N,): all, or of a pool those with another class or no number."""
    if not keeps_all(run):
        return torch.ones(len(cases), dtype=torch.bool)
    fails: Tensor = cases.info["pred"] != cases.y
    return fails | (cases.info["kind"] == NONFINITE) if "kind" in cases.info else fails


def class_names(run: Store, cases: Cases) -> tuple[str, ...]:
    """The classes of the run's target; numbers where it does not name them."""
    named = identity_of(run).get("target", {}).get("classes") or classes_in(run)
    if named:
        return tuple(named)
    most = max(int(column.max()) for column in (cases.y, cases.info.get("pred", cases.y)) if len(column))
    return tuple(str(i) for i in range(max(most + 1, 2)))


def per_class(cases: Cases, classes: tuple[str, ...]) -> dict[str, int]:
    """How many cases have each true class, of the classes that occur."""
    labels, counts = cases.y.unique(return_counts=True)
    names = (classes[y] if y >= 0 else "unlabelled" for y in labels.tolist())
    return dict(zip(names, counts.tolist(), strict=True))


def failing(cases: Cases) -> Cases:
    """Those that fail: all of a fuzzing run, of an evaluation those that fooled its target."""
    return cases[cases.info["success"].to(torch.bool)] if "success" in cases.info else cases
