"""Fuzzing: schedule, mutate, judge, commit, until the budget is spent. Same command, same run: it goes on."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from assay.core import environment, store
from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.errors import NothingToTest, UsageError
from assay.core.randomness import Stream
from assay.core.shards import decode, encode
from assay.core.store import Store
from assay.core.units import budget, seconds
from assay.engines.failures import as_shard, checked
from assay.engines.lanes import Lanes, Unit
from assay.engines.session import session
from assay.engines.stop import Stopper
from assay.recipes.recipe import Recipe, Stages, resolve
from assay.subjects.bench import Bench, Data, check_fit
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target
from assay.subjects.target import Target, require

UNIT = 256
OPEN_UNITS = 4

Progress = Callable[[Mapping[str, Any]], None]


@dataclass(slots=True)
class Found:
    """What a fuzzing run has found so far. ``cases`` counts cases tried, ``failures`` those that fail."""

    run: Path
    seeds: int = 0
    cases: int = 0
    failures: int = 0
    distinct: int = 0
    flaky: int = 0
    gradient_steps: int = 0
    seconds: float = 0.0
    complete: bool = False
    interrupted: bool = False
    stats: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.failures

    def load(self) -> Cases:
        """The failures, with the label of their seed and their columns."""
        return load_failures(store.read(self.run))

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"run": str(self.run)}


def load_failures(run: Store) -> Cases:
    """All committed failures of a run; the ``seed_x`` column holds the seed each grew from."""
    parts = [as_cases(run, name) for line in run.commits("fuzz") for name in line.files if name.startswith("cases/")]
    if not parts:
        raise NothingToTest(f"run {run.name} holds no failures")
    return Cases.cat(parts)


def as_cases(run: Store, name: str) -> Cases:
    """The failures of one shard."""
    columns = decode(run.file(name))
    x, y, origin, seeds = (columns.pop(key) for key in ("x", "y", "origin", "seeds"))
    return Cases(x, y, origin, {**columns, "seed_x": seeds[columns["seed"]]})


def fuzz(
    recipe: str | Recipe,
    model: str | nn.Module | Target,
    data: str | Data,
    *,
    run: str | None = None,
    time: str | float | None = None,
    cases: int | None = None,
    seed: int = 0,
    eps: str | float | None = None,
    norm: str | None = None,
    changes: Mapping[str, Any] | None = None,
    unit: int = UNIT,
    lanes: int = 256,
    device: str = "auto",
    fresh: bool = False,
    deterministic: bool = False,
    progress: Progress | None = None,
) -> Found:
    """Look for failing cases and keep them in a run folder; a run that exists is continued.

    Without ``time`` and ``cases`` every seed is worked once. Both budgets count over all sessions of a run.
    """
    if unit < 1 or lanes < 1 or (cases is not None and cases < 1):
        raise UsageError(f"unit {unit}, lanes {lanes} and cases {cases} must be at least 1")
    seeds_from = load_data(data, part="train")
    target = load_target(model, data=seeds_from, device=device)
    check_fit(target, seeds_from)
    offered = {"eps": None if eps is None else budget(eps), "norm": norm}
    stages = resolve(recipe, changes or {}, offered)
    require(target, stages.needs(), f"recipe {stages.name!r}")
    _rehearse(target, stages)
    config: dict[str, dict[str, Any]] = {
        "run": {"kind": "fuzz", "seed": seed, "unit": unit, "deterministic": deterministic},
        "target": {
            "model": model if isinstance(model, str) else "module",
            "fingerprint": target.fingerprint(),
            "classes": list(target.spec.classes),
        },
        "data": {"spec": seeds_from.name, "fingerprint": seeds_from.fingerprint()},
        "recipe": stages.config(),
        "budget": {
            k: v for k, v in (("time", time if time is None else seconds(time)), ("cases", cases)) if v is not None
        },
    }
    with (
        store.opened(run, config, environment.describe(), fresh=fresh) as folder,
        session(deterministic=deterministic),
    ):
        bench = Bench(target, chunks=Chunks())
        with target.ready():
            campaign = _Campaign(folder, bench, stages, Stream(seed, ("fuzz",)), unit, progress or (lambda _: None))
            campaign.prepare(seeds_from)
            # One unit at a time where bytes must repeat: then a unit's batches do not depend on its neighbours.
            return campaign.go(lanes, 1 if deterministic else OPEN_UNITS, config["budget"])


def _rehearse(target: Target, stages: Stages) -> None:
    """Every stage once on no cases at all: parameters that cannot work are refused before a run folder is made."""
    none = torch.zeros(0, dtype=torch.int64, device=target.device)
    x = torch.zeros(0, *target.spec.shape, device=target.device)
    logits = torch.zeros(0, len(target.spec.classes), device=target.device)
    cases = Cases(x, none, none, {"step": none, "hits": none, "logits": logits})
    bench = Bench(target)
    stages.mutate(bench, cases, rng=Stream(0).rows(none))
    stages.oracle(bench, cases)
    stages.schedule(bench, cases)


class _Campaign:
    """A fuzzing run under way."""

    def __init__(self, folder: Store, bench: Bench, stages: Stages, rng: Stream, unit: int, progress: Progress) -> None:
        self.folder, self.bench, self.stages, self.rng, self.progress = folder, bench, stages, rng, progress
        self.unit = unit
        self.found = summary(folder)
        self.seeds: Cases

    def prepare(self, data: Data) -> None:
        """The seed list: chosen once and committed, so that a resumed run works the same one."""
        done = next(self.folder.commits("seeds"), None)
        if done is None:
            chosen = self.stages.seeds(self.bench, data.cases, rng=self.rng.at("seeds"))
            if not len(chosen):
                raise NothingToTest(
                    f"the seeder {self.stages.seeds.entry.name!r} leaves none of {len(data)} cases: "
                    "the target gets every one wrong, or the data are not what it was trained for"
                )
            rows = {"rows": _rows_of(chosen, data), "y": chosen.y}
            self.folder.commit({"state/seeds.safetensors": encode(rows)}, kind="seeds", seeds=len(chosen))
        kept = decode(self.folder.file("state/seeds.safetensors"))
        self.seeds = Cases(data.cases.x[kept["rows"]], kept["y"], data.cases.origin[kept["rows"]])

    def go(self, width: int, open_units: int, budget: Mapping[str, Any]) -> Found:
        began = time.monotonic() - self.found.seconds
        left = None if "time" not in budget else budget["time"] - self.found.seconds
        limit = budget.get("cases", math.inf)
        endless = bool(budget)
        lanes = Lanes(
            self.bench,
            self.stages,
            self.seeds,
            self.rng,
            self._units(endless),
            width=width,
            open_units=open_units,
        )
        with Stopper(left) as stop:
            while not stop.now and self.found.cases < limit:
                working = lanes.step()
                self._commit_ready(lanes, limit)
                self.found.seconds = time.monotonic() - began
                self.progress(self._now(lanes))
                if not working:
                    break
            if stop.now:  # finished seeds of open units are kept; the others start again next time
                for unit in list(lanes.open):
                    self._commit(lanes, unit, unit.ended.nonzero().flatten())
            self.found.interrupted = stop.interrupted
        self.found.seconds = time.monotonic() - began
        self.found.complete = not stop.interrupted
        self._write_stats()
        return self.found

    def _units(self, endless: bool) -> Iterator[Unit]:
        """Units in order, less what is committed: one cycle over the seeds, or cycle after cycle."""
        done = finished_slots(self.folder)
        per_cycle = math.ceil(len(self.seeds) / self.unit)
        number = 0
        while endless or number < per_cycle:
            cycle, block = divmod(number, per_cycle)
            rows = torch.arange(block * self.unit, min((block + 1) * self.unit, len(self.seeds)))
            if number in done:
                rows = rows[~torch.isin(rows, done[number])]
            if len(rows):
                yield Unit(number, cycle, rows)
            number += 1

    def _commit_ready(self, lanes: Lanes, limit: float) -> None:
        """Commit the oldest units that are done, in order; where the budget of cases ends inside one, up to there."""
        while lanes.open:
            unit = lanes.open[0]
            whole = unit.prefix()
            reached = self.found.cases + unit.tries[:whole].cumsum(0) >= limit
            if bool(reached.any()):
                self._commit(lanes, unit, torch.arange(int(reached.nonzero()[0]) + 1))
                return
            if whole < len(unit.rows):
                return
            self._commit(lanes, unit, torch.arange(whole))

    def _commit(self, lanes: Lanes, unit: Unit, slots: torch.Tensor) -> None:
        lanes.close(unit)
        if not len(slots):
            return
        judged = checked(self.bench, self.stages, unit.failures(slots))
        failing, flaky = judged or (None, None)
        number = len(self.folder.lines)
        files = {
            f"{place}/step-{number:06d}.safetensors": encode(as_shard(some, self.seeds))
            for place, some in (("cases", failing), ("flaky", flaky))
            if some is not None and len(some)
        }
        tried = int(unit.tries[slots].sum())
        self.folder.commit(
            files,
            kind="fuzz",
            unit=unit.number,
            rows=unit.rows[slots].tolist(),
            seeds=len(slots),
            cases=tried,
            failures=0 if failing is None else len(failing),
            distinct=0 if failing is None else distinct(failing),
            flaky=0 if flaky is None else len(flaky),
            gradient_steps=tried * self.stages.mutate.entry.gradients,
        )
        _add(self.found, self.folder.lines[-1].meta)
        self._write_stats()

    def _now(self, lanes: Lanes) -> dict[str, Any]:
        under_way = sum(int(unit.tries.sum()) for unit in lanes.open)
        waiting = sum(len(part) for unit in lanes.open for part in unit.found)
        return {
            "seconds": self.found.seconds,
            "seeds": self.found.seeds,
            "cases": self.found.cases + under_way,
            "failures": self.found.failures + waiting,
        }

    def _write_stats(self) -> None:
        rate = self.found.cases / self.found.seconds if self.found.seconds else 0.0
        self.found.stats = {"cases_per_second": round(rate, 1), "seed_list": len(self.seeds)}
        self.folder.write_stats(self.found.to_json() | {"run": self.folder.name, "updated": time.time()})


def summary(folder: Store) -> Found:
    """The counts of a run, from its journal; only the time comes from ``stats.json``."""
    found = Found(folder.path, seconds=float(folder.stats().get("seconds", 0.0)))
    for line in folder.commits("fuzz"):
        _add(found, line.meta)
    return found


def finished_slots(folder: Store) -> dict[int, torch.Tensor]:
    """The seed positions already committed, by unit."""
    done: dict[int, list[int]] = {}
    for line in folder.commits("fuzz"):
        done.setdefault(int(line.meta["unit"]), []).extend(line.meta["rows"])
    return {number: torch.tensor(rows) for number, rows in done.items()}


def _add(found: Found, meta: Mapping[str, Any]) -> None:
    for name in ("seeds", "cases", "failures", "distinct", "flaky", "gradient_steps"):
        setattr(found, name, getattr(found, name) + int(meta[name]))


def distinct(failing: Cases) -> int:
    """Failures that differ in seed or in wrong class."""
    pairs = torch.stack([failing.origin, failing.info["pred"]], 1)
    return len(pairs.unique(dim=0))


def _rows_of(chosen: Cases, data: Data) -> torch.Tensor:
    """The rows of the data that the seeds are."""
    place = torch.full((int(data.cases.origin.max()) + 1,), -1)
    place[data.cases.origin] = torch.arange(len(data))
    return place[chosen.origin]
