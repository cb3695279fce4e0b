"""A fuzzing run under way: its seeds, its lanes, what it commits."""

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from assay.core.cases import Cases
from assay.core.errors import BudgetSpent, ModelFailed
from assay.core.randomness import Stream
from assay.core.store import Store
from assay.engines.asking import asked_of
from assay.engines.commits import Commits, Judged
from assay.engines.found import Found, finished_slots, summary
from assay.engines.gauges import Gauges
from assay.engines.guidance import Guidance
from assay.engines.lanes import Lanes, rules_of
from assay.engines.once_more import once_more
from assay.engines.operators import added
from assay.engines.parents import Parents
from assay.engines.preparing import scores_of_seeds, try_mutator
from assay.engines.seeding import seeding, seeds_of
from assay.engines.stability import KIND, stability, stability_of
from assay.engines.stop import Stopper
from assay.engines.trouble import Trouble
from assay.engines.unit import Unit
from assay.recipes.recipe import Stages
from assay.stages.objective import Choice, Look, choose
from assay.stages.schedules import Pooled, Schedule
from assay.subjects.bench import Bench, Data
from assay.subjects.target import START

log = logging.getLogger("assay")

STATS_SECONDS = 1.0  # a file for people to look at, not written more often than they can
IDLE_SECONDS = 5.0  # and, where no commit comes, so that they see it lives

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
        confirm: str = "",
        ignored: Collection[str] = (),
    ) -> None:
        self.folder, self.bench, self.search, self.stages = folder, bench, search, stages
        self.rng, self.unit, self.progress = rng, unit, progress
        self.whole_units = whole_units  # the rest of a unit, worked in another batch, rounds otherwise
        self.schedule: Schedule = stages.schedule()
        self.guidance = guidance
        chooser, coverage = guidance.chooser, guidance.coverage
        self.look = Look(stages.objective, stages.weights, stages.score, chooser=chooser, coverage=coverage)
        self.found = summary(folder)
        self.gauges = Gauges(folder, self.found, bench.target, guidance, ignored)
        self.trouble = Trouble(folder)
        self.asked_confirm = confirm
        self.parents: Parents | None = None
        self.seeds: Cases
        self.commits: Commits
        self._told = -math.inf

    def prepare(self, data: Data) -> bool:
        """The seed list, and what the campaign knows already where it goes on; False where a budget ends before it."""
        rng = self.rng.at("seeds")
        try:
            self.seeds = once_more(
                lambda: seeds_of(self.folder, self.stages, self.bench, data, rng),
                "while seeds were chosen",
                hint="--set seeds=all takes the cases without asking it",
            )
        except BudgetSpent as spent:
            log.warning("no seed is chosen yet: %s", spent)
            self.seeds = data.cases[:0]
            self._write_stats()
            return False
        self.found.seeding = seeding(self.folder)
        confirm = stability_of(self.folder, self.bench.target, self.seeds, self.rng.at(KIND), self.asked_confirm)
        self.found.stability = stability(self.folder)
        known = self.guidance.load(self.folder)
        before = self.guidance.known()
        once_more(
            lambda: self._learn_seeds(known=known), "before the first case", lambda: self.guidance.back_to(before)
        )
        self.commits = Commits(self.folder, self.bench, self.stages, self.guidance, self.seeds, self.parents, confirm)
        return True

    def _learn_seeds(self, *, known: bool) -> None:
        """What a pool or a fitted mutator has to know of the seeds."""
        if isinstance(self.schedule, Pooled):
            self.parents = Parents(self.schedule, self.seeds)
            self.parents.replay(self.folder)
            self.parents.scores = scores_of_seeds(self._lanes(iter(()), 1, 1))
            if self.guidance.coverage is not None and not known:
                self.guidance.cover_seeds(self.search, self.seeds)
        if START in self.stages.mutate.entry.needs:
            try_mutator(self._lanes(iter(()), 1, 1), self.folder)

    def choose_look(self, width: int, asked: str) -> None:
        """How slopes are taken: chosen once and committed, so that a resumed run goes on the same way."""
        if not self.stages.objective:
            return
        done = next(self.folder.commits("look"), None)
        if done is None:
            known = self.guidance.known()
            choice = once_more(lambda: self._chosen_look(width, asked), "before the first case")
            if self.guidance.chooser is not None:  # these lanes were none of the campaign's
                self.guidance.chooser.load(known["strategy"])
            self.folder.commit({}, kind="look", curvature=choice.curvature, milliseconds=dict(choice.milliseconds))
        else:
            choice = Choice(done.meta["curvature"], done.meta["milliseconds"])
            if asked not in ("auto", choice.curvature):
                log.warning("run %s goes on with curvature %s, as it began", self.folder.name, choice.curvature)
        self.look = replace(self.look, curvature=choice.curvature)

    def _chosen_look(self, width: int, asked: str) -> Choice:
        start = self._lanes(iter(()), width, 1).at(self.seeds[:width])
        start = start.note(seed_logits=self.search.logits(start))
        return choose(self.look, self.search, start, asked)

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
        begun = time.monotonic()
        began = begun - self.found.seconds
        left = None if "time" not in budget else budget["time"] - self.found.seconds
        limit = budget.get("cases", math.inf)
        self.gauges.begin(budget, len(self.seeds), self.commits.kinds.count)
        once = getattr(self.schedule, "once", False)  # a second cycle would make the same cases again
        endless = not once and ("time" in budget or "cases" in budget)
        self._begun = self.guidance.known()

        def lanes_now() -> Lanes:
            units = self._units(endless) if self.parents is None else self._drawn_units(self.parents, endless)
            return self._lanes(units, width, 1 if self.trouble.suspects else open_units)

        lanes = lanes_now()
        with Stopper(left) as stop:
            spent = False
            while not stop.now and self.found.cases < limit:
                try:
                    working = lanes.step()
                    self._commit_ready(lanes, limit)
                except BudgetSpent:  # what was answered is in the target's book: the step is done again without asking
                    spent = True
                    break
                except ModelFailed as error:
                    self.found.seconds = time.monotonic() - began
                    if not stop.now:
                        self._forget(lanes, error)
                        lanes = lanes_now()
                    continue
                if not self.trouble.suspects:
                    lanes.most_open = open_units
                self.found.seconds = time.monotonic() - began
                self.progress(self.gauges.read(lanes))
                if time.monotonic() - max(self._told, begun) >= IDLE_SECONDS:
                    self._write_stats()
                if not working:
                    break
            if spent and not self.whole_units and self.parents is None:
                self._commit_finished(lanes, in_order="cases" in budget)
            if stop.now and not stop.interrupted and "cases" not in budget:
                lanes.cut_short()  # the time was spent on them; what a cycle leaves out, the next one works
            if stop.now and not (stop.interrupted and (self.whole_units or self.parents is not None)):
                self._commit_finished(lanes, in_order="cases" in budget)
            self.found.interrupted = stop.interrupted
        if not stop.interrupted:
            self.trouble.judge(ended=True)
        self.found.seconds = time.monotonic() - began
        self.found.complete = not stop.interrupted and not spent
        self.gauges.read(lanes, anew=True)
        self._write_stats()
        return self.found

    def _forget(self, lanes: Lanes, error: ModelFailed) -> None:
        """Go back to the last commit after the model failed; a unit that it fails on alone, and again, is skipped."""
        if not lanes.open:
            raise error
        gone = self.trouble.met(lanes.open, error)
        if not self.guidance.load(self.folder):
            self.guidance.back_to(self._begun)
        if gone is None:
            return
        if self.parents is not None:
            self.parents.take(gone.rows)
        self.trouble.judge()  # before the skip is committed: mended, the same command works the unit
        if self.trouble.good:
            self._commit_skipped()
        self._write_stats()

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
            if len(rows) and number not in self.trouble.passed_over:
                yield Unit(number, cycle, rows, rules_of(self.stages))
            number += 1

    def _drawn_units(self, parents: Parents, endless: bool) -> Iterator[Unit]:
        """Units of parents drawn from the pool as it stands when they are opened; a cycle has as many as the seeds."""
        done = finished_slots(self.folder)
        number = 0
        while endless or number * self.unit < len(self.seeds):
            if number not in done and number not in self.trouble.passed_over:
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
                whole = int(reached.nonzero()[0]) + 1
            elif whole < len(unit.rows):
                return
            slots = torch.arange(whole)
            (judged,) = self.commits.judged([(unit, slots)])  # before anything is changed: the model may fail here, too
            self._commit(lanes, unit, slots, judged)
            if self.found.cases >= limit:
                return

    def _commit_finished(self, lanes: Lanes, *, in_order: bool) -> None:
        """Keep the finished seeds of open units; the others start again next time.

        A budget of cases ends at a place in the order of seeds: under one, only seeds without a gap before them count.
        """
        ended = [
            (unit, torch.arange(unit.prefix()) if in_order else unit.ended.nonzero().flatten())
            for unit in lanes.open[: 1 if in_order else None]
        ]
        try:
            judged = once_more(lambda: self.commits.judged(ended), "while failures were checked")
        except ModelFailed as error:
            log.warning("%d seeds that had ended are worked again next time: %s", sum(len(s) for _, s in ended), error)
            return
        for (unit, slots), found in zip(ended, judged, strict=True):
            self._commit(lanes, unit, slots, found)

    def _commit(self, lanes: Lanes, unit: Unit, slots: torch.Tensor, judged: Judged) -> None:
        lanes.close(unit)
        if not len(slots):
            return
        self._commit_skipped()
        self.commits.unit(unit, slots, judged)
        self.trouble.over(unit)
        line = self.folder.lines[-1].meta
        self.found.add(line["counts"], line["kept"], line.get("opinions", {}))
        added(self.found.operators, line.get("operators", {}))
        self.gauges.committed(lanes, self.commits.kinds.count)
        if time.monotonic() - self._told >= STATS_SECONDS:
            self._write_stats()

    def _commit_skipped(self) -> None:
        for line in self.trouble.commit():
            self.found.add(line["counts"], {}, {})
            self.found.skipped_because = self.found.skipped_because or line["error"]

    def _write_stats(self) -> None:
        self._told = time.monotonic()
        rate = self.found.cases / self.found.seconds if self.found.seconds else 0.0
        self.found.stats = {"cases_per_second": round(rate, 1), "seed_list": len(self.seeds)}
        if self.parents is not None:
            self.found.stats["pool"] = len(self.parents)
        self.found.coverage = self.guidance.facts(self.stages, self.search.observer)
        self.found.queries = asked_of(self.bench.target)
        self.found.warnings = self.gauges.warnings
        told = {"run": self.folder.name, "updated": time.time(), **self.gauges.told()}
        self.folder.write_stats(self.found.to_json() | told)
        self.gauges.row()
