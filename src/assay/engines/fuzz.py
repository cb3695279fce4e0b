"""Fuzzing: schedule, mutate, judge, commit, until the budget is spent. Same command, same run: it goes on."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
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
from assay.engines.found import Found, finished_slots, pairs, summary
from assay.engines.lanes import Lanes, Unit
from assay.engines.session import session
from assay.engines.stop import Stopper
from assay.recipes.recipe import Recipe, Stages, resolve
from assay.subjects.bench import Bench, Data, fitted
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target
from assay.subjects.target import Target, require

UNIT = 256
OPEN_UNITS = 4

Progress = Callable[[Mapping[str, Any]], None]


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
    size: str = "",
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    fresh: bool = False,
    deterministic: bool = False,
    progress: Progress | None = None,
) -> Found:
    """Look for failing cases and keep them in a run folder; a run that exists is continued.

    Without ``time`` and ``cases`` every seed is worked once. Both budgets count over all sessions of a run.
    """
    if unit < 1 or lanes < 1 or (cases is not None and cases < 1):
        raise UsageError(f"unit {unit}, lanes {lanes} and cases {cases} must be at least 1")
    seeds_from = load_data(data, part="train", size=size)
    target = load_target(model, data=seeds_from, device=device, mean=mean, std=std)
    seeds_from = fitted(target, seeds_from)
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
            **({"mean": list(mean), "std": list(std)} if mean or std else {}),
        },
        "data": {
            "spec": seeds_from.source or seeds_from.name,
            "fingerprint": seeds_from.fingerprint(),
            **({"size": size} if size else {}),
        },
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
    for stage, extra in ((stages.mutate, {"rng": Stream(0).rows(none)}), (stages.oracle, {}), (stages.schedule, {})):
        if not stage.from_file:
            stage(bench, cases, **extra)


class _Campaign:
    """A fuzzing run under way."""

    def __init__(self, folder: Store, bench: Bench, stages: Stages, rng: Stream, unit: int, progress: Progress) -> None:
        self.folder, self.bench, self.stages, self.rng, self.progress = folder, bench, stages, rng, progress
        self.unit = unit
        self.found = summary(folder)
        self.seeds: Cases
        self.pairs = pairs(folder)

    def prepare(self, data: Data) -> None:
        """The seed list: chosen once and committed, so that a resumed run works the same one."""
        done = next(self.folder.commits("seeds"), None)
        if done is None:
            numbered = data.cases.note(place=torch.arange(len(data)))
            chosen = self.stages.seeds(self.bench, numbered, rng=self.rng.at("seeds"))
            if not len(chosen):
                raise NothingToTest(
                    f"the seeder {self.stages.seeds.entry.name!r} leaves none of {len(data)} cases: "
                    "the target gets every one wrong, or the data are not what it was trained for"
                )
            place = chosen.info["place"]
            kept = {"place": place, "y": chosen.y}
            if not torch.equal(chosen.x, data.cases.x[place]):  # seeds the seeder made; others are in the data
                kept["x"] = chosen.x
            self.folder.commit({"state/seeds.safetensors": encode(kept)}, kind="seeds", seeds=len(chosen))
        kept = decode(self.folder.file("state/seeds.safetensors"))
        x = kept.get("x", data.cases.x[kept["place"]])
        self.seeds = Cases(x, kept["y"], data.cases.origin[kept["place"]])

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
            if stop.now:
                self._commit_finished(lanes, in_order="cases" in budget)
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

    def _commit_finished(self, lanes: Lanes, *, in_order: bool) -> None:
        """Keep the finished seeds of open units; the others start again next time.

        A budget of cases ends at a place in the order of seeds: under one, only seeds without a gap before them count.
        """
        if in_order:
            for unit in lanes.open[:1]:
                self._commit(lanes, unit, torch.arange(unit.prefix()))
            return
        for unit in list(lanes.open):
            self._commit(lanes, unit, unit.ended.nonzero().flatten())

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
            counts={
                "seeds": len(slots),
                "cases": tried,
                "failures": 0 if failing is None else len(failing),
                "distinct": 0 if failing is None else self._new_pairs(failing),
                "flaky": 0 if flaky is None else len(flaky),
                "gradient_steps": tried * self.stages.mutate.entry.gradients,
            },
        )
        self.found.count(self.folder.totals("fuzz"))
        self._write_stats()

    def _new_pairs(self, failing: Cases) -> int:
        """How many of these failures differ in seed or wrong class from all before."""
        before = len(self.pairs)
        self.pairs.update(zip(failing.origin.tolist(), failing.info["pred"].tolist(), strict=True))
        return len(self.pairs) - before

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
