"""What a fuzzing run has found: counts from its journal, failures from its shards."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from assay.core import store
from assay.core.cases import Cases
from assay.core.errors import NothingToTest, UsageError
from assay.core.places import known_as
from assay.core.shards import decode
from assay.core.store import Store
from assay.engines.operators import added
from assay.engines.seeding import seeding
from assay.engines.stability import stability

if TYPE_CHECKING:
    from assay.engines.kinds import Kinds
    from assay.engines.shrinkings import Shrunk


@dataclass(slots=True)
class Found:
    """What a fuzzing run has found so far.

    ``cases`` counts cases tried, ``valid`` those of them that the recipe's rules let through (runs begun before it was
    counted tell too few), ``failures`` those that fail by the recipe's oracle and were stored, ``wrong`` those
    of them that the target itself gives another class than their label, ``distinct`` their pairs of seed and
    wrong class, ``broken`` the seeds they grew from; ``kept`` how often each rule of keeping fired and ``opinions`` how
    often each oracle that only gives its opinion, over all valid cases; ``operators`` how many cases each operator of
    the mutator made, where it has several, and how many of them failed; ``seeding`` how the seeds came about: of how
    many cases each step of the chain left how many, at which levels, and how many of the seeds have no label of their
    own, so that ``failures`` and ``wrong`` are by what a model says of the clean parent; ``gradient_steps``
    the steps taken up a slope of the objective (what an attack used as mutator asks for itself is not counted);
    ``coverage`` what is covered of which criterion and layers, where the recipe has one; ``queries`` what a target that
    only answers was asked. ``nonfinite`` are the failures whose answer is NaN or infinite, none of ``wrong``;
    ``skipped`` the seeds left out because the model failed on them twice, first with ``skipped_because``;
    ``stability`` whether the model answered its seeds the same when asked again; ``warnings`` the signs that
    this run is not working (docs/status.md), each with ``name``, ``message`` and ``more``, where to read on.
    """

    run: Path
    recipe: str = ""
    seeds: int = 0
    cases: int = 0
    valid: int = 0
    failures: int = 0
    wrong: int = 0
    distinct: int = 0
    broken: int = 0
    nonfinite: int = 0
    flaky: int = 0
    skipped: int = 0
    skipped_because: str | None = None
    gradient_steps: int = 0
    kept: dict[str, int] = field(default_factory=dict)
    opinions: dict[str, int] = field(default_factory=dict)
    operators: dict[str, dict[str, int]] = field(default_factory=dict)
    seeding: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    complete: bool = False
    interrupted: bool = False
    stats: dict[str, Any] = field(default_factory=dict)
    coverage: dict[str, Any] | None = None
    queries: dict[str, Any] | None = None
    stability: dict[str, Any] | None = None
    warnings: list[dict[str, str]] = field(default_factory=list)

    def __len__(self) -> int:
        return self.failures

    def add(self, counts: Mapping[str, int], kept: Mapping[str, int], opinions: Mapping[str, int]) -> None:
        """Add the counts of a commit, or of all of them."""
        for name, count in counts.items():
            setattr(self, name, getattr(self, name) + count)
        for rule, count in kept.items():
            self.kept[rule] = self.kept.get(rule, 0) + count
        for oracle, count in opinions.items():
            self.opinions[oracle] = self.opinions.get(oracle, 0) + count

    def load(self) -> Cases:
        """The failures, with the label of their seed and their columns."""
        return load_failures(store.read(self.run))

    def kinds(self) -> "Kinds | None":
        """How many kinds of failures there are, of which classes, from the run's shards; None where there are none."""
        from assay.engines.kinds import kinds_in

        return kinds_in(store.read(self.run))

    def shrink(self, **given: Any) -> "Shrunk":
        """The failures with as little changed as it takes, one of each kind unless ``distinct=False``; see
        ``assay.shrink``. A run of a live model must be given it again: ``model=``.
        """
        from assay.engines.shrink import shrink

        return shrink(self.run, **{"distinct": True} | given)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"run": known_as(self.run)}


def load_failures(run: Store) -> Cases:
    """All committed failures of a run; the ``seed_x`` column holds the seed each grew from."""
    parts = [as_cases(run, name) for line in run.commits("fuzz") for name in line.files if name.startswith("cases/")]
    if not parts:
        raise NothingToTest(f"run {run.name} holds no failures")
    return Cases.cat(parts)


def as_cases(run: Store, name: str) -> Cases:
    """The failures of one shard."""
    columns = decode(run.file(name))
    missing = [key for key in ("x", "y", "origin", "seeds", "seed", "pred") if key not in columns]
    if missing:
        raise UsageError(f"{run.path / name} is no shard of failures: it has no column {missing[0]!r}")
    x, y, origin, seeds = (columns.pop(key) for key in ("x", "y", "origin", "seeds"))
    place = columns["seed"]
    if (
        seeds.shape[1:] != x.shape[1:]
        or place.dtype != torch.int64
        or bool(((place < 0) | (place >= len(seeds))).any())
    ):
        raise UsageError(f"{run.path / name} is no shard of failures: its seeds are not those of its cases")
    return Cases(x, y, origin, {**columns, "seed_x": seeds[place]})


def summary(folder: Store) -> Found:
    """The counts of a run, from its journal; only the time comes from ``stats.json``."""
    recipe = folder.lines[0].meta.get("identity", {}).get("recipe", {}).get("name", "") if folder.lines else ""
    found = Found(folder.path, recipe, seconds=float(folder.stats().get("seconds", 0.0)))
    found.add(*(folder.totals("fuzz", what) for what in ("counts", "kept", "opinions")))
    for line in folder.commits("fuzz"):
        added(found.operators, line.meta.get("operators", {}))
    found.seeding = seeding(folder)
    found.skipped_because = next((line.meta["error"] for line in folder.commits("fuzz") if "error" in line.meta), None)
    found.stability = stability(folder)
    return found


def finished_slots(folder: Store) -> dict[int, torch.Tensor]:
    """The seed positions already committed, by unit."""
    done: dict[int, list[int]] = {}
    for line in folder.commits("fuzz"):
        done.setdefault(int(line.meta["unit"]), []).extend(line.meta["rows"])
    return {number: torch.tensor(rows) for number, rows in done.items()}


def pairs(folder: Store) -> set[tuple[int, int]]:
    """The pairs (seed, wrong class) found so far."""
    seen: set[tuple[int, int]] = set()
    for line in folder.commits("fuzz"):
        for name in line.files:
            if name.startswith("cases/"):
                columns = decode(folder.file(name))
                seen.update(zip(columns["origin"].tolist(), columns["pred"].tolist(), strict=True))
    return seen
