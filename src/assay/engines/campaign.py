"""A fuzzing run under way: its seeds, its lanes, what it commits."""

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from assay.core.cases import Cases
from assay.core.errors import BudgetSpent, ModelFailed
from assay.core.randomness import Stream
from assay.core.store import Store
from assay.engines.asking import asked_of
from assay.engines.away import Away
from assay.engines.block_size import rows_at_once
from assay.engines.cluster import Cluster
from assay.engines.commits import Commits
from assay.engines.found import Found, summary
from assay.engines.fuzz_worker import FuzzWorker, Pieces
from assay.engines.gauges import Gauges, UnderWay
from assay.engines.guidance import Guidance, Known
from assay.engines.here import Here
from assay.engines.jobs import Rows
from assay.engines.judged import Judge, Judged
from assay.engines.lanes import Lanes, rules_of
from assay.engines.once_more import once_more
from assay.engines.operators import added
from assay.engines.parents import Parents
from assay.engines.pool import pool
from assay.engines.preparing import scores_of_seeds, try_mutator
from assay.engines.seeding import seeding, seeds_of
from assay.engines.stability import KIND, keeps_still, stability, stability_of
from assay.engines.stop import Stopper
from assay.engines.trouble import Trouble
from assay.engines.unit import Unit
from assay.engines.unit_list import UnitList
from assay.engines.waves import Waves
from assay.recipes.recipe import Stages
from assay.stages.objective import Choice, Look, choose
from assay.stages.schedules import Pooled, Schedule
from assay.subjects.bench import Bench, Data
from assay.subjects.hurried import Hurried
from assay.subjects.target import START

log = logging.getLogger("assay")

STATS_SECONDS = 1.0  # a file for people to look at, not written more often than they can
TIMED_LANES = 1024  # on which ways to take a slope are timed: the slowest of them may take twenty times the fastest
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
        wave: int = 1,
        confirm: str = "",
        ignored: Collection[str] = (),
    ) -> None:
        self.folder, self.bench, self.search, self.stages = folder, bench, search, stages
        self.rng, self.unit, self.progress = rng, unit, progress
        self.whole_units = whole_units  # the rest of a unit, worked in another batch, rounds otherwise
        self.schedule: Schedule = stages.schedule()
        self.guidance, self.waves = guidance, Waves(wave, guidance)
        chooser, coverage = guidance.chooser, guidance.coverage
        self.look = Look(stages.objective, stages.weights, stages.score, chooser=chooser, coverage=coverage)
        self.found = summary(folder)
        self.gauges = Gauges(folder, self.found, bench.target, guidance, ignored)
        self.trouble = Trouble(folder)
        self.asked_confirm = confirm
        self.parents: Parents | None = None
        self.seeds: Cases
        self.commits: Commits
        self.units: UnitList
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
        judge = Judge(self.bench, self.stages, confirm, isinstance(self.search.target, Hurried), self._still())
        self.commits = Commits(self.folder, self.bench, self.stages, self.guidance, self.seeds, self.parents, judge)
        rules, held = rules_of(self.stages), (self.waves, self.trouble, self.parents)
        self.units = UnitList(self.folder, len(self.seeds), self.unit, rules, self.rng, *held)
        return True

    def _still(self) -> bool:
        """Whether the nets may be asked beside a search under way; on a CPU nothing is."""
        nets = (self.bench.target, *self.bench.roles.values())
        on_gpu = any(net.device.type == "cuda" for net in nets)
        return not on_gpu or not len(self.seeds) or keeps_still(nets, self.seeds.x[:2])

    def _learn_seeds(self, *, known: bool) -> None:
        """What a pool or a fitted mutator has to know of the seeds."""
        if isinstance(self.schedule, Pooled):
            self.parents = Parents(self.schedule, self.seeds)
            self.parents.scores = scores_of_seeds(self.lanes_of(iter(()), 1, 1))
            self.waves.replay(self.parents, self.folder)
            if self.guidance.coverage is not None and not known:
                self.guidance.cover_seeds(self.search, self.seeds)
        if START in self.stages.mutate.entry.needs:
            try_mutator(self.lanes_of(iter(()), 1, 1), self.folder)

    def choose_look(self, width: int, asked: str) -> None:
        """How slopes are taken: chosen once and committed, so that a resumed run goes on the same way."""
        if not self.stages.objective:
            return
        done, known = next(self.folder.commits("look"), None), self.guidance.known()
        if done is None:
            choice = once_more(lambda: self._chosen_look(width, asked), "before the first case")
            self.folder.commit({}, kind="look", curvature=choice.curvature, milliseconds=dict(choice.milliseconds))
        else:
            choice = Choice(done.meta["curvature"], done.meta["milliseconds"])
            if asked not in ("auto", choice.curvature):
                log.warning("run %s goes on with curvature %s, as it began", self.folder.name, choice.curvature)
        self.look = replace(self.look, curvature=choice.curvature)
        if self.search.target.device.type == "cuda" and not self.whole_units:
            once_more(lambda: self._fit_passes(width), "before the first case")
        if self.guidance.chooser is not None:  # these lanes were none of the campaign's
            self.guidance.chooser.load(known["strategy"])

    def _chosen_look(self, width: int, asked: str) -> Choice:
        return choose(self.look, self.search, self._first_lanes(width), asked)

    def _fit_passes(self, width: int) -> None:
        """As many rows in a pass as suit the GPU."""
        first, chunks, target = self._first_lanes(width), self.search.chunks, self.search.target
        chunks.size = rows_at_once(lambda: self.look(self.search, first), len(first), chunks.size, first.x.device)
        if isinstance(target, Hurried):  # a compiled net's batches are filled up to it
            target.rows = chunks.size

    def _first_lanes(self, width: int) -> Cases:
        """Lanes as at their seeds, to see what a step takes."""
        width = min(width, TIMED_LANES)
        start = self.lanes_of(iter(()), width, 1).at(self.seeds[:width])
        return start.note(seed_logits=self.search.logits(start))

    def lanes_of(self, units: Iterator[Unit], width: int, open_units: int) -> Lanes:
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

    def go(self, width: int, open_units: int, budget: Mapping[str, Any], cluster: Cluster | None = None) -> Found:
        """Work until the budget is spent: in this process, or on a cluster, whose start no budget counts."""
        self._begun = self.guidance.known()
        self.waves.begin(self.folder)
        if cluster is None:
            return self._go(budget, Here(self, width, open_units))
        make = partial(FuzzWorker, self._pieces(width, open_units).to_travel())
        device = str(self.bench.target.device)
        with pool(cluster, make, device=device, deterministic=self.whole_units) as workers:
            return self._go(budget, Away(self, workers))

    def _go(self, budget: Mapping[str, Any], work: Here | Away) -> Found:
        begun = time.monotonic()
        self._began, self._session = begun - self.found.seconds, begun
        left = None if "time" not in budget else budget["time"] - self.found.seconds
        self.gauges.begin(budget, len(self.seeds), self.commits.kinds.count)
        once = getattr(self.schedule, "once", False)  # a second cycle would make the same cases again
        endless = not once and ("time" in budget or "cases" in budget)
        with Stopper(left) as stop:
            limit = budget.get("cases", math.inf)
            spent = work.work(stop, limit, left, endless=endless, in_order="cases" in budget)
            self.found.interrupted = stop.interrupted
        if not stop.interrupted:
            self.trouble.judge(ended=True)
        self.clock()
        self.found.complete = not stop.interrupted and not spent
        self.gauges.read(work.lanes, anew=True)
        self._write_stats()
        return self.found

    def _pieces(self, width: int, room: int) -> Pieces:
        """What a worker needs to work units."""
        seeds = Rows.of(self.seeds)
        judge, wave = self.commits.judged, self.waves.size
        held = (self.search, judge, self.stages, self.schedule, self.look, seeds, self.rng, self.guidance)
        return Pieces(*held, width=width, room=room, wave=wave)

    def clock(self) -> None:
        """Note how long the campaign has been at work."""
        self.found.seconds = time.monotonic() - self._began

    def tick(self, lanes: UnderWay) -> None:
        """A moment has passed: tell of it."""
        self.clock()
        self.progress(self.gauges.read(lanes))
        if time.monotonic() - max(self._told, self._session) >= IDLE_SECONDS:
            self._write_stats()

    def forget(self, units: list[Unit], error: ModelFailed) -> None:
        """Go back to the last commit after the model failed; a unit that it fails on alone, and again, is skipped."""
        if not units:
            raise error
        gone = self.trouble.met(units, error)
        if not self.guidance.load(self.folder):
            self.guidance.back_to(self._begun)
        if gone is not None:
            self._pass_over(gone)

    def skip(self, unit: Unit, error: ModelFailed) -> None:
        """Leave out a unit on which the model failed alone, and again, where it was worked."""
        self.trouble.suspects.add(unit.number)
        self.trouble.met([unit], error)
        self._pass_over(unit)

    def _pass_over(self, unit: Unit) -> None:
        if self.parents is not None:
            self.parents.take(unit.rows)
        self.trouble.judge()  # before the skip is committed: mended, the same command works the unit
        if self.trouble.good:
            self._commit_skipped()
        self._write_stats()

    def ends_at(self, unit: Unit, limit: float) -> int | None:
        """How many slots of a unit are committed where the budget of cases ends inside it; else None."""
        reached = self.found.cases + unit.tries[: unit.prefix()].cumsum(0) >= limit
        # What is covered counts whole units: the rest of one would be covered by cases that nobody has.
        if not bool(reached.any()) or self.guidance.coverage is not None:
            return None
        return int(reached.nonzero()[0]) + 1

    def commit(
        self, lanes: UnderWay, unit: Unit, slots: torch.Tensor, judged: Judged, news: Known | None = None
    ) -> None:
        """Commit those slots of a unit, with what it has learnt where it was worked apart from others."""
        if not len(slots):
            return
        self._commit_skipped()
        if news is not None:
            self.waves.commit(unit.number, news)
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
