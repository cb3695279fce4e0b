"""How many kinds of failures a run has found: see ``assay.core.clusters``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.core import clusters
from assay.core.cache import remembered
from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.files import canonical_json, sha256
from assay.core.store import Store
from assay.engines.found import as_cases
from assay.engines.lanes import NONFINITE
from assay.engines.stored import fails_in, identity_of, keeps_all

NO_NUMBER = -1  # the wrong class of a failure whose answer was NaN or infinite
SAME_KIND = "same_kind"  # why a failure is left out: one of its kind is taken
MANY = 20_000  # failures from which on the kinds are kept in the cache: fewer take no time


@dataclass(frozen=True, slots=True)
class Pair:
    """The failures of one class that were taken for another: how many, of how many kinds."""

    true: int
    predicted: int  # NO_NUMBER where the answer was none
    failures: int
    kinds: int

    @property
    def capped(self) -> bool:
        """Whether no more kinds of these classes are told apart, so that there may be more."""
        return self.kinds >= clusters.MOST


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds of a run's failures, those of the classes with most failures first, and the names of the classes."""

    pairs: tuple[Pair, ...]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return sum(pair.kinds for pair in self.pairs)

    def to_json(self) -> dict[str, Any]:
        told = [
            {
                "from": self.named(pair.true),
                "to": self.named(pair.predicted),
                "failures": pair.failures,
                "kinds": pair.kinds,
                "capped": pair.capped,
            }
            for pair in self.pairs
        ]
        return {"count": len(self), "capped": any(pair.capped for pair in self.pairs), "pairs": told}

    def named(self, number: int) -> str:
        """The name of a class."""
        if number == NO_NUMBER:
            return "no number"
        return self.classes[number] if number < len(self.classes) else str(number)


def kinds_of(cases: Cases) -> Tensor:
    """The kind of each failing case, (N,), from 0 as they first occur; the column ``seed_x`` says what was changed."""
    for column, what in (("seed_x", "seeds, which tell what was changed"), ("pred", "wrong classes")):
        if column not in cases.info:
            raise UsageError(f"the kinds of failures cannot be told: they have no {what}")
    predicted = _predicted(cases.info)
    parts = (x - seed for x, seed in zip(cases.x.split(4096), cases.info["seed_x"].split(4096), strict=True))
    return _kinds(cases.y, predicted, torch.cat([clusters.directions(part) for part in parts]))


def one_of_each(cases: Cases) -> Tensor:
    """The rows with the smallest change of each kind, (K,), in the order of kinds."""
    kinds = kinds_of(cases)
    size = (cases.x - cases.info["seed_x"]).flatten(1).norm(dim=1)
    order = size.argsort(stable=True)
    order = order[kinds[order].argsort(stable=True)]
    counts = kinds.bincount()
    smallest: Tensor = order[counts.cumsum(0) - counts]
    return smallest


def kinds_in(run: Store) -> Kinds | None:
    """The kinds of the failures that a fuzzing run has committed, None where there are none.

    Of a run that keeps every case, those count that the target gives another class than their label.
    """
    shards = {n: d for line in run.commits("fuzz") for n, d in line.files.items() if n.startswith("cases/")}
    if not shards:
        return None

    def made() -> dict[str, Tensor]:
        return {"pairs": _counted(run, list(shards))}

    if run.totals("fuzz").get("failures", 0) < MANY:
        found = made()
    else:
        setting = [clusters.CELLS, clusters.PARTS, clusters.ALIKE, clusters.MOST, keeps_all(run)]
        key = sha256(canonical_json({"shards": shards, "setting": setting}).encode())
        found = remembered("kinds", key, made, lambda told: "pairs" in told and told["pairs"].shape[1:] == (4,))
    pairs = tuple(Pair(*row) for row in found["pairs"].tolist())
    named = identity_of(run).get("target", {}).get("classes") or ()
    return Kinds(pairs, tuple(named)) if pairs else None


class KindsSoFar:
    """How many kinds a run under way has committed; it stops counting where they would cost more than they tell."""

    def __init__(self, run: Store) -> None:
        self._all = keeps_all(run)
        self._begun = clusters.Begun()
        self._failures = 0
        shards = [name for line in run.commits("fuzz") for name in line.files if name.startswith("cases/")]
        if run.totals("fuzz").get("failures", 0) >= MANY:
            self._failures = MANY
            return
        for name in shards:
            cases = as_cases(run, name)
            self.add(cases, cases.info["seed_x"])

    @property
    def count(self) -> int | None:
        """None where there are too many failures to count them beside the work; ``kinds_in`` does."""
        return len(self._begun) if self._failures < MANY else None

    def add(self, failing: Cases, seeds: Tensor) -> None:
        """More failures, with the input that each grew from."""
        self._failures += len(failing)
        if self._failures >= MANY:
            return
        predicted = _predicted(failing.info)
        rows = predicted != failing.y if self._all else torch.ones_like(failing.y, dtype=torch.bool)
        directions = clusters.directions((failing.x - seeds)[rows])
        self._begun.add(torch.stack([failing.y, predicted], 1)[rows], directions)


def _counted(run: Store, shards: list[str]) -> Tensor:
    """For each pair of classes: the two, how many failures, how many kinds, (P, 4); most failures first."""
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    for name in shards:
        cases = as_cases(run, name)
        cases = cases[fails_in(run, cases)]
        change = cases.x - cases.info["seed_x"]
        parts.append((cases.y, _predicted(cases.info), clusters.directions(change)))
    true, predicted, direction = (torch.cat(column) for column in zip(*parts, strict=True))
    kinds = _kinds(true, predicted, direction)
    pairs, place, counts = torch.stack([true, predicted], 1).unique(dim=0, return_inverse=True, return_counts=True)
    several = torch.stack([place, kinds], 1).unique(dim=0)[:, 0].bincount(minlength=len(pairs))
    told = torch.cat([pairs, counts[:, None], several[:, None]], 1)
    return told[counts.argsort(descending=True, stable=True)]


def _kinds(true: Tensor, predicted: Tensor, direction: Tensor) -> Tensor:
    _, groups = torch.stack([true, predicted], 1).unique(dim=0, return_inverse=True)
    return clusters.clusters(groups, direction)


def _predicted(columns: Mapping[str, Tensor]) -> Tensor:
    """The class each failure was given, (N,); NO_NUMBER where the answer was none."""
    given = columns["pred"]
    return torch.where(columns["kind"] == NONFINITE, NO_NUMBER, given) if "kind" in columns else given
