"""A fuzzing run under way: its seeds, its lanes, what it commits."""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from assay.core.cases import Cases
from assay.core.errors import BudgetSpent
from assay.core.randomness import Stream
from assay.core.shards import encode
from assay.core.store import Store
from assay.engines.asking import asked_of
from assay.engines.failures import as_shard, checked
from assay.engines.found import Found, finished_slots, pairs, summary
from assay.engines.guidance import Guidance
from assay.engines.lanes import Lanes, rules_of
from assay.engines.parents import Parents
from assay.engines.preparing import scores_of_seeds, try_mutator
from assay.engines.seeding import seeding, seeds_of
from assay.engines.stop import Stopper
from assay.engines.unit import Unit
from assay.recipes.recipe import Stages
from assay.stages.objective import Choice, Look, choose
from assay.stages.schedules import Pooled, Schedule
from assay.stages.twins import VULNERABLE
from assay.subjects.bench import Bench, Data
from assay.subjects.target import START

log = logging.getLogger("assay")

STATS_SECONDS = 1.0  # a file for people to look at, not written more often than they can

Progress = Callable[[Mapping[str, Any]], None]


class Campaign:
    """A fuzzing run under way."""

    def __init__(
        self,
        folder: Store,
        bench: Bench,
        search: Bench,
        stages: Stages,
        rng: Stream,
        unit: int,
        progress: Progress,
        guidance: Guidance,
        *,
        whole_units: bool,
    ) -> None:
        self.folder, self.bench, self.search, self.stages = folder, bench, search, stages
        self.rng, self.unit, self.progress = rng, unit, progress
        self.whole_units = whole_units  # the rest of a unit, worked in another batch, rounds otherwise
        self.schedule: Schedule = stages.schedule()
        self.guidance = guidance
        chooser, coverage = guidance.chooser, guidance.coverage
        self.look = Look(stages.objective, stages.weights, stages.score, chooser=chooser, coverage=coverage)
        self.found = summary(folder)
        self.parents: Parents | None = None
        self.seeds: Cases
        self.pairs = pairs(folder)
        self.broken = {seed for seed, _ in self.pairs}
        self._told = -math.inf

    def prepare(self, data: Data) -> bool:
        """The seed list, and what the campaign knows already where it goes on; False where a budget ends before it."""
        try:
            self.seeds = seeds_of(self.folder, self.stages, self.bench, data, self.rng.at("seeds"))
        except BudgetSpent as spent:
            log.warning("no seed is chosen yet: %s", spent)
            self.seeds = data.cases[:0]
            self._write_stats()
            return False
        self.found.seeding = seeding(self.folder)
        known = self.guidance.load(self.folder)
        if isinstance(self.schedule, Pooled):
            self.parents = Parents(self.schedule, self.seeds)
            self.parents.replay(self.folder)
            self.parents.scores = scores_of_seeds(self._lanes(iter(()), 1, 1))
            if self.guidance.coverage is not None and not known:
                self.guidance.cover_seeds(self.search, self.seeds)
        if START in self.stages.mutate.entry.needs:
            try_mutator(self._lanes(iter(()), 1, 1), self.folder)
        return True

    def choose_look(self, width: int, asked: str) -> None:
        """How slopes are taken: chosen once and committed, so that a resumed run goes on the same way."""
        if not self.stages.objective:
            return
        done = next(self.folder.commits("look"), None)
        if done is None:
            known = None if self.guidance.chooser is None else self.guidance.chooser.state()
            start = self._lanes(iter(()), width, 1).at(self.seeds[:width])
            start = start.note(seed_logits=self.search.logits(start))
            choice = choose(self.look, self.search, start, asked)
            if self.guidance.chooser is not None and known is not None:  # these lanes were none of the campaign's
                self.guidance.chooser.load(known)
            self.folder.commit({}, kind="look", curvature=choice.curvature, milliseconds=dict(choice.milliseconds))
        else:
            choice = Choice(done.meta["curvature"], done.meta["milliseconds"])
            if asked not in ("auto", choice.curvature):
                log.warning("run %s goes on with curvature %s, as it began", self.folder.name, choice.curvature)
        self.look = replace(self.look, curvature=choice.curvature)

    def _lanes(self, units: Iterator[Unit], width: int, open_units: int) -> Lanes:
        return Lanes(
            self.search,
            self.stages,
            self.schedule,
            self.look,
            self.seeds,
            self.rng,
            units,
            self.guidance,
            width=width,
            open_units=open_units,
        )

    def go(self, width: int, open_units: int, budget: Mapping[str, Any]) -> Found:
        began = time.monotonic() - self.found.seconds
        left = None if "time" not in budget else budget["time"] - self.found.seconds
        limit = budget.get("cases", math.inf)
        once = getattr(self.schedule, "once", False)  # a second cycle would make the same cases again
        endless = not once and ("time" in budget or "cases" in budget)
        units = self._units(endless) if self.parents is None else self._drawn_units(self.parents, endless)
        lanes = self._lanes(units, width, open_units)
        with Stopper(left) as stop:
            spent = False
            while not stop.now and self.found.cases < limit:
                try:
                    working = lanes.step()
                except BudgetSpent:  # what was answered is in the target's book: the step is done again without asking
                    spent = True
                    break
                self._commit_ready(lanes, limit)
                self.found.seconds = time.monotonic() - began
                self.progress(self._now(lanes))
                if not working:
                    break
            if spent and not self.whole_units and self.parents is None:
                self._commit_finished(lanes, in_order="cases" in budget)
            if stop.now and not stop.interrupted and "cases" not in budget:
                lanes.cut_short()  # the time was spent on them; what a cycle leaves out, the next one works
            if stop.now and not (stop.interrupted and (self.whole_units or self.parents is not None)):
                self._commit_finished(lanes, in_order="cases" in budget)
            self.found.interrupted = stop.interrupted
        self.found.seconds = time.monotonic() - began
        self.found.complete = not stop.interrupted and not spent
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
                yield Unit(number, cycle, rows, rules_of(self.stages))
            number += 1

    def _drawn_units(self, parents: Parents, endless: bool) -> Iterator[Unit]:
        """Units of parents drawn from the pool as it stands when they are opened; a cycle has as many as the seeds."""
        done = finished_slots(self.folder)
        number = 0
        while endless or number * self.unit < len(self.seeds):
            if number not in done:
                rows = parents.pick(min(self.unit, len(parents)), self.rng.at("pick", number))
                yield Unit(number, number, rows, rules_of(self.stages), parents.cases(rows))
            number += 1

    def _commit_ready(self, lanes: Lanes, limit: float) -> None:
        """Commit the oldest units that are done, in order; where the budget of cases ends inside one, up to there."""
        while lanes.open:
            unit = lanes.open[0]
            whole = unit.prefix()
            reached = self.found.cases + unit.tries[:whole].cumsum(0) >= limit
            # What is covered counts whole units: the rest of one would be covered by cases that nobody has.
            if bool(reached.any()) and self.guidance.coverage is None:
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
        if failing is not None and VULNERABLE in self.bench.roles:
            failing = failing.note(others_pred=self.bench.others(failing).argmax(2).cpu())
        number = len(self.folder.lines)
        files = {
            f"{place}/step-{number:06d}.safetensors": encode(
                as_shard(some, self.seeds, self.stages.score, self.bench.target)
            )
            for place, some in (("cases", failing), ("flaky", flaky))
            if some is not None and len(some)
        }
        files |= self._joined(unit, slots, number)
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
                "wrong": 0 if failing is None else int((failing.info["pred"] != failing.y).sum()),
                **self._new(failing),
                "flaky": 0 if flaky is None else len(flaky),
                "gradient_steps": tried * self.stages.mutate.entry.gradients,
            },
            **self._fired(unit.fired[slots].sum(0).tolist()),
            **self._guided(),
        )
        line = self.folder.lines[-1].meta
        self.found.add(line["counts"], line["kept"], line.get("opinions", {}))
        if time.monotonic() - self._told >= STATS_SECONDS:
            self._write_stats()

    def _fired(self, counts: list[int]) -> dict[str, dict[str, int]]:
        """How often each rule of keeping and each opinion fired."""
        rules = len(self.stages.keep)
        kept = dict(zip(self.stages.keep, counts[:rules], strict=True))
        opinions = dict(zip(self.stages.opinions, counts[rules:], strict=True))
        return {"kept": kept, **({"opinions": opinions} if opinions else {})}

    def _joined(self, unit: Unit, slots: torch.Tensor, number: int) -> dict[str, bytes]:
        """Let what was kept join the pool; the file that says so."""
        if self.parents is None:
            return {}
        self.parents.take(unit.rows[slots])
        members = unit.members(slots)
        if members is None or not len(members):
            return {}
        members = members.note(parent=unit.rows[members.info["slot"]]).drop("slot")
        self.parents.join(members)
        columns = {"x": members.x, "y": members.y, "origin": members.origin, **members.info}
        return {f"state/pool-{number:06d}.safetensors": encode(columns)}

    def _guided(self) -> dict[str, Any]:
        """What a commit says of the coverage."""
        if self.guidance.coverage is None:
            return {}
        return {"guidance": self.guidance.save(self.folder), "covered": self.guidance.coverage.covered()}

    def _new(self, failing: Cases | None) -> dict[str, int]:
        """How many of these failures differ in seed or wrong class from all before, and in seed."""
        new = (
            set() if failing is None else set(zip(failing.origin.tolist(), failing.info["pred"].tolist(), strict=True))
        )
        new -= self.pairs
        broken = {seed for seed, _ in new} - self.broken
        self.pairs |= new
        self.broken |= broken
        return {"distinct": len(new), "broken": len(broken)}

    def _now(self, lanes: Lanes) -> dict[str, Any]:
        return {
            "seconds": self.found.seconds,
            "seeds": self.found.seeds,
            "cases": self.found.cases + sum(unit.tried for unit in lanes.open),
            "failures": self.found.failures + sum(unit.waiting for unit in lanes.open),
        }

    def _write_stats(self) -> None:
        self._told = time.monotonic()
        rate = self.found.cases / self.found.seconds if self.found.seconds else 0.0
        self.found.stats = {"cases_per_second": round(rate, 1), "seed_list": len(self.seeds)}
        if self.parents is not None:
            self.found.stats["pool"] = len(self.parents)
        self.found.coverage = self.guidance.facts(self.stages, self.search.observer)
        self.found.queries = asked_of(self.bench.target)
        self.folder.write_stats(self.found.to_json() | {"run": self.folder.name, "updated": time.time()})
