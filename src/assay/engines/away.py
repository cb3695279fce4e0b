"""A campaign whose units are worked on Ray; this process draws them, takes what comes back and commits it, in order."""

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

import torch

from assay.core.cases import Cases
from assay.core.errors import ModelFailed
from assay.engines.fuzz_worker import FuzzDone, FuzzJob, only, unpacked
from assay.engines.judged import ANEW
from assay.engines.once_more import once_more
from assay.engines.pool import Pool
from assay.engines.stop import Stopper
from assay.engines.unit import Unit

if TYPE_CHECKING:
    from assay.engines.campaign import Campaign

log = logging.getLogger("assay")

GRACE_SECONDS = 60.0  # that workers have to hand over what they hold when the time is up


@dataclass(slots=True)
class Nowhere:
    """No lanes are in this process."""

    open: list[Unit] = field(default_factory=list)
    now: Cases | None = None


class Away:
    """The units of one session of a campaign, on a pool of workers."""

    def __init__(self, campaign: "Campaign", workers: Pool[FuzzJob, FuzzDone | ModelFailed]) -> None:
        self.campaign, self.workers = campaign, workers
        self.guided = campaign.guidance.coverage is not None or campaign.parents is not None
        self.units: dict[int, Unit] = {}
        self.lanes = Nowhere()

    def work(self, stop: Stopper, limit: float, left: float | None, *, endless: bool, in_order: bool) -> bool:
        """Work until the budget is spent; ``in_order`` says that it ends at a place in the order of seeds. Never True:
        models with a budget of queries stay at home.
        """
        until = None if left is None else time.time() + left
        waves = self.campaign.units.by_wave(endless=endless)
        # Where nothing guides, units need not wait for each other.
        for units in waves if self.guided else (chain.from_iterable(waves),):
            if stop.now or self.campaign.found.cases >= limit:
                return False
            jobs = self._jobs(units, stop, until, cut=not in_order)
            for job, result in self.workers.map(jobs, lambda: self._idle(stop, until)):
                if not self._take(self.units.pop(job.number), result, limit, in_order=in_order):
                    return False
        return False

    def _jobs(self, units: Iterable[Unit], stop: Stopper, until: float | None, *, cut: bool) -> Iterator[FuzzJob]:
        for unit in units:
            if stop.now:
                return
            self.units[unit.number] = unit
            base = self.campaign.waves.base(unit.number) if self.campaign.guidance.coverage is not None else None
            yield FuzzJob.of(unit, base, until, cut=cut)

    def _idle(self, stop: Stopper, until: float | None) -> bool:
        self.campaign.gauges.workers = self.workers.state()
        self.campaign.tick(self.lanes)
        return stop.interrupted or (until is not None and time.time() > until + GRACE_SECONDS)

    def _take(self, unit: Unit, result: FuzzDone | ModelFailed, limit: float, *, in_order: bool) -> bool:
        """Commit what came of a unit; False where the campaign ends with it."""
        campaign = self.campaign
        if isinstance(result, ModelFailed):
            campaign.skip(unit, result)
            return True
        judged = result.onto(unit)
        slots = unit.ended.nonzero().flatten()
        whole = len(slots) == len(unit.rows)
        if in_order and not whole:
            slots = torch.arange(unit.prefix())
            judged = only(judged, slots, len(unit.rows))
        ends = campaign.ends_at(unit, limit) if in_order else None
        if ends is not None:
            # Asked again here, as a campaign in one process does it: the company of a batch rounds.
            worked, unit.found = judged, [cases.drop(*ANEW) for cases in unit.found]
            slots = torch.arange(ends)
            try:
                (judged,) = once_more(lambda: campaign.commits.judged([(unit, slots)]), "while failures were checked")
            except ModelFailed as error:
                log.warning("%s; they count as the worker judged them", error)
                judged = only(worked, slots, len(unit.rows))
        news = None if result.news is None else unpacked(result.news)
        campaign.commit(self.lanes, unit, slots, judged, news)
        campaign.tick(self.lanes)
        return campaign.found.cases < limit and not (in_order and not whole)
