"""A worker of a campaign on Ray: it holds the nets and the seeds, and works the units that it is given.

It writes nothing. Its lanes stay full across the units it holds, as those of a campaign in one process do; a unit of a
wave begins with the state that comes with it.
"""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import ModelFailed
from assay.core.precision import full_precision
from assay.core.randomness import Stream
from assay.engines.guidance import Guidance, Known
from assay.engines.jobs import Rows, on_cpu
from assay.engines.judged import Judge, Judged
from assay.engines.lanes import Lanes
from assay.engines.once_more import once_more
from assay.engines.trouble import log
from assay.engines.unit import Unit
from assay.recipes.recipe import Stages
from assay.stages.objective import Look
from assay.stages.schedules import Schedule
from assay.stages.workshop import WORKSHOP
from assay.subjects.bench import Bench

Array = np.ndarray[Any, Any]
Sent = dict[str, dict[str, Array]]  # what is known, as it travels


@dataclass(frozen=True, slots=True)
class FuzzJob:
    """A unit to work. ``base`` is what it begins with; ``until`` the time of day at which it is left as it stands, its
    seeds ended there where it is to be ``cut`` short.
    """

    number: int
    cycle: int
    rows: Array
    rules: int
    parents: Rows | None
    base: Sent | None
    until: float | None
    cut: bool

    @staticmethod
    def of(unit: Unit, base: Known | None, until: float | None, *, cut: bool) -> "FuzzJob":
        parents = None if unit.parents is None else Rows.of(unit.parents)
        sent = None if base is None else packed(base)
        return FuzzJob(unit.number, unit.cycle, unit.rows.numpy(), unit.rules, parents, sent, until, cut)

    def unit(self) -> Unit:
        parents = None if self.parents is None else self.parents[:]
        return Unit(self.number, self.cycle, torch.from_numpy(self.rows.copy()), self.rules, parents)


@dataclass(frozen=True, slots=True)
class FuzzDone:
    """What came of a unit: of its seeds that ended, its failures, what may join the pool, and what it learnt."""

    ended: Array
    tries: Array
    fired: Array
    failing: Rows | None
    flaky: Rows | None
    members: Rows | None
    news: Sent | None

    @staticmethod
    def of(unit: Unit, judged: Judged, news: Known | None) -> "FuzzDone":
        members = unit.members(unit.ended.nonzero().flatten())
        failing, flaky, joining = (None if some is None else Rows.of(some) for some in (*judged, members))
        sent = None if news is None else packed(news)
        counts = (unit.ended.numpy(), unit.tries.numpy(), unit.fired.numpy())
        return FuzzDone(*counts, failing, flaky, joining, sent)

    def onto(self, unit: Unit) -> Judged:
        """Note all that in the unit; its failures as they were judged."""
        unit.ended, unit.tries, unit.fired = (
            torch.from_numpy(array.copy()) for array in (self.ended, self.tries, self.fired)
        )
        failing, flaky = (None if some is None else some[:] for some in (self.failing, self.flaky))
        unit.found = [cases for cases in (failing, flaky) if cases is not None and len(cases)]
        unit.joining = [] if self.members is None else [self.members[:]]
        return failing, flaky


def packed(known: Known) -> Sent:
    return {part: on_cpu(state) for part, state in known.items()}


def unpacked(sent: Sent) -> Known:
    return {part: {n: torch.from_numpy(a.copy()) for n, a in state.items()} for part, state in sent.items()}


@dataclass(frozen=True, slots=True)
class Pieces:
    """What a worker holds; ``room`` units at a time, and in waves one by one."""

    search: Bench
    judge: Judge
    stages: Stages
    schedule: Schedule
    look: Look
    seeds: Rows
    rng: Stream
    guidance: Guidance
    width: int
    room: int
    wave: int

    def to_travel(self) -> "Pieces":
        """Without what belongs to the process that writes: the run, and who looks on."""
        kept = {name: thing for name, thing in self.search.kept.items() if name != WORKSHOP}
        judge = replace(self.judge, bench=replace(self.judge.bench, kept=kept))
        return replace(self, search=replace(self.search, kept=kept), judge=judge)


class FuzzWorker:
    """The lanes of one worker, fed with the units it is given."""

    def __init__(self, pieces: Pieces) -> None:
        self.pieces, self.room = pieces, pieces.room
        self.seeds = pieces.seeds.shared()  # lanes take theirs by number
        self.guided = bool(pieces.guidance.coverage is not None)
        self.waiting: deque[tuple[int, FuzzJob]] = deque()
        self.held: dict[int, tuple[int, FuzzJob]] = {}  # by the number of the unit
        self.suspects: set[int] = set()  # open when the model failed, and not done since
        self._open = ExitStack()  # for as long as the process lasts
        self._open.enter_context(full_precision())
        for net in (pieces.search.target, pieces.judge.bench.target, *pieces.search.roles.values()):
            self._open.enter_context(net.ready())
        self.lanes = self._fresh()

    def step(self, jobs: list[tuple[int, FuzzJob]]) -> list[tuple[int, FuzzDone | ModelFailed]]:
        self.waiting.extend(jobs)
        while True:
            if self._late():
                return self._left()
            self.lanes.most_open = 1 if self.suspects else self.room
            try:
                self.lanes.step()
                done = self._done()
            except ModelFailed as error:
                done = self._failed(error)
            if done:
                return done

    def _fresh(self) -> Lanes:
        p = self.pieces
        return Lanes(
            p.search,
            p.stages,
            p.schedule,
            p.look,
            self.seeds,
            p.rng,
            _Feed(self),
            p.guidance,
            width=p.width,
            open_units=self.room,
        )

    def take(self) -> Unit | None:
        """The next unit to open, None where there is none yet."""
        if not self.waiting:
            return None
        number, job = self.waiting.popleft()
        self.held[job.number] = (number, job)
        if job.base is not None:
            self.pieces.guidance.begin_unit(unpacked(job.base))
        return job.unit()

    def _done(self) -> list[tuple[int, FuzzDone | ModelFailed]]:
        """What has ended, judged: the model may fail there, too, and then nothing is changed."""
        ended = [unit for unit in self.lanes.open if bool(unit.ended.all())]
        judged = [self.pieces.judge([(unit, torch.arange(len(unit.rows)))])[0] for unit in ended]
        return [self._given(unit, found) for unit, found in zip(ended, judged, strict=True)]

    def _given(self, unit: Unit, judged: Judged) -> tuple[int, FuzzDone | ModelFailed]:
        self.lanes.close(unit)
        self.suspects.discard(unit.number)
        number, _ = self.held.pop(unit.number)
        news: Known | None = None
        if self.guided:
            guidance = self.pieces.guidance
            news = guidance.news() if self.pieces.wave > 1 else guidance.known()
        return number, FuzzDone.of(unit, judged, news)

    def _late(self) -> bool:
        jobs = (job for _, job in (*self.held.values(), *self.waiting))
        return any(job.until is not None and time.time() >= job.until for job in jobs)

    def _left(self) -> list[tuple[int, FuzzDone | ModelFailed]]:
        """All units as they stand when the time is up; those that were not begun, with nothing done."""
        self.lanes.settle()
        if any(job.cut for _, job in self.held.values()):
            self.lanes.cut_short()
        ended = [(unit, unit.ended.nonzero().flatten()) for unit in list(self.lanes.open)]
        try:
            judged = once_more(lambda: self.pieces.judge(ended), "while failures were checked")
        except ModelFailed as error:
            log.warning("seeds that had ended are worked again next time: %s", error)
            ended, judged = [(_nothing(unit), slots[:0]) for unit, slots in ended], [(None, None)] * len(ended)
        given = [self._given(unit, found) for (unit, _), found in zip(ended, judged, strict=True)]
        while self.waiting:
            number, job = self.waiting.popleft()
            given.append((number, FuzzDone.of(job.unit(), (None, None), None)))
        return given

    def _failed(self, error: ModelFailed) -> list[tuple[int, FuzzDone | ModelFailed]]:
        """The model failed: all that is open is tried again, one by one; what fails alone, and again, is given up."""
        units = list(self.lanes.open)
        if not units:
            raise error
        jobs = [self.held.pop(unit.number) for unit in units]
        self.lanes = self._fresh()
        if len(units) == 1 and units[0].number in self.suspects:
            self.suspects.discard(units[0].number)
            return [(jobs[0][0], error)]
        if not self.suspects:
            log.warning("%s; the seeds under way are tried once more", error)
        self.suspects |= {unit.number for unit in units}
        self.waiting.extendleft(reversed(jobs))
        return []


class _Feed(Iterator[Unit]):
    """The units that a worker is given: it runs dry, and has more when more come."""

    def __init__(self, worker: FuzzWorker) -> None:
        self._worker = worker

    def __next__(self) -> Unit:
        unit = self._worker.take()
        if unit is None:
            raise StopIteration
        return unit


def _nothing(unit: Unit) -> Unit:
    """The unit with none of its seeds ended."""
    unit.ended = torch.zeros_like(unit.ended)
    unit.tries, unit.fired = torch.zeros_like(unit.tries), torch.zeros_like(unit.fired)
    return unit


def only(judged: Judged, slots: Tensor, count: int) -> Judged:
    """Of the failures of a unit of ``count`` slots, those of some slots."""
    keep = torch.zeros(count, dtype=torch.bool)
    keep[slots] = True

    def part(cases: Cases | None) -> Cases | None:
        return None if cases is None else cases[keep[cases.info["slot"]]]

    return part(judged[0]), part(judged[1])
