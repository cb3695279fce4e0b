"""A campaign whose units are worked in this process."""

import logging
from typing import TYPE_CHECKING

import torch

from assay.core.errors import BudgetSpent, ModelFailed
from assay.engines.lanes import Lanes
from assay.engines.once_more import once_more
from assay.engines.stop import Stopper
from assay.engines.unit import Unit

if TYPE_CHECKING:
    from assay.engines.campaign import Campaign
    from assay.engines.judged import Judged

log = logging.getLogger("assay")


class Here:
    """The lanes of one session of a campaign, with so many units open at a time."""

    def __init__(self, campaign: "Campaign", width: int, open_units: int) -> None:
        self.campaign, self.width, self.open_units = campaign, width, open_units
        self.lanes: Lanes

    def _anew(self, *, endless: bool) -> Lanes:
        campaign = self.campaign
        most = 1 if campaign.trouble.suspects else self.open_units
        return campaign.lanes_of(campaign.units.one_by_one(endless=endless), self.width, most)

    def work(self, stop: Stopper, limit: float, left: float | None, *, endless: bool, in_order: bool) -> bool:
        """Work until the budget is spent; True where it is the budget of queries."""
        campaign = self.campaign
        self.lanes = self._anew(endless=endless)
        spent = False
        while not stop.now and campaign.found.cases < limit:
            try:
                working = self.lanes.step()
                self._commit_ready(limit)
            except BudgetSpent:  # what was answered is in the target's book: the step is done again without asking
                spent = True
                break
            except ModelFailed as error:
                campaign.clock()
                if not stop.now:
                    campaign.forget(self.lanes.open, error)
                    self.lanes = self._anew(endless=endless)
                continue
            if not campaign.trouble.suspects:
                self.lanes.most_open = self.open_units
            campaign.tick(self.lanes)
            if not working:
                break
        self._hand_over(stop, spent=spent, in_order=in_order)
        return spent

    def _hand_over(self, stop: Stopper, *, spent: bool, in_order: bool) -> None:
        """Keep what can be kept of units that are not done."""
        campaign = self.campaign
        self.lanes.settle()
        whole = campaign.whole_units or campaign.parents is not None
        if spent and not whole:
            self._commit_finished(in_order=in_order)
        if stop.now and not stop.interrupted and not in_order:
            self.lanes.cut_short()  # the time was spent on them; what a cycle leaves out, the next one works
        if stop.now and not (stop.interrupted and whole):
            self._commit_finished(in_order=in_order)

    def _commit_ready(self, limit: float) -> None:
        """Commit the oldest units that are done, in order; where the budget of cases ends inside one, up to there."""
        while self.lanes.open:
            unit = self.lanes.open[0]
            ends = self.campaign.ends_at(unit, limit)
            if ends is None and unit.prefix() < len(unit.rows):
                return
            slots = torch.arange(len(unit.rows) if ends is None else ends)
            # Before anything is changed: the model may fail here, too.
            (judged,) = self.campaign.commits.judged([(unit, slots)])
            self._commit(unit, slots, judged)
            if self.campaign.found.cases >= limit:
                return

    def _commit_finished(self, *, in_order: bool) -> None:
        """Keep the finished seeds of open units; the others start again next time.

        A budget of cases ends at a place in the order of seeds: under one, only seeds without a gap before them count.
        """
        ended = [
            (unit, torch.arange(unit.prefix()) if in_order else unit.ended.nonzero().flatten())
            for unit in self.lanes.open[: 1 if in_order else None]
        ]
        try:
            judged = once_more(lambda: self.campaign.commits.judged(ended), "while failures were checked")
        except ModelFailed as error:
            log.warning("%d seeds that had ended are worked again next time: %s", sum(len(s) for _, s in ended), error)
            return
        for (unit, slots), found in zip(ended, judged, strict=True):
            self._commit(unit, slots, found)

    def _commit(self, unit: Unit, slots: torch.Tensor, judged: "Judged") -> None:
        waves = self.campaign.waves
        news = waves.news() if waves.size > 1 and self.campaign.guidance.coverage is not None else None
        self.lanes.close(unit)
        self.campaign.commit(self.lanes, unit, slots, judged, news)
