"""The queue of a seed: what goes in, what comes out, when it ends."""

from typing import Any

import pytest
import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.registry import bind
from assay.stages.schedules import Next

YES, NO = torch.tensor([True]), torch.tensor([False])


class Lane:
    """One seed at 1.0, driven step by step; slopes are ten times the input."""

    def __init__(self, **params: Any) -> None:
        self.schedule = bind("schedule", "queue", params)()
        x = torch.ones(1, 1)
        lane = Cases.of(x, torch.zeros(1, dtype=torch.int64)).note(seed_x=x, slope=torch.zeros(1, 1))
        self.lane = self.schedule.start(lane.note(step=torch.zeros(1, dtype=torch.int64), opening=YES))
        self.last: Next = self._turn(1.0, YES, NO)
        self.lane = self.lane.note(opening=NO)

    def _turn(self, x: float, kept: Tensor, failing: Tensor) -> Next:
        made = self.lane.with_x(torch.full((1, 1), x)).note(slope=torch.full((1, 1), 10 * x))
        self.last = self.schedule.next(self.lane, made, kept, failing)
        self.lane = self.last.lanes
        return self.last

    def step(self, x: float, *, kept: bool = True, failing: bool = False) -> float:
        """Make x; returns where the lane stands next."""
        self.lane = self.lane.note(step=self.lane.info["step"] + 1)
        self._turn(x, YES if kept else NO, YES if failing else NO)
        assert float(self.lane.info["slope"]) == pytest.approx(10 * float(self.lane.x))
        return float(self.lane.x)

    @property
    def ended(self) -> bool:
        return bool(self.last.ended)

    @property
    def stored(self) -> bool:
        return bool(self.last.stored)


def test_the_seed_is_the_first_entry_and_is_taken_out_at_once() -> None:
    lane = Lane(iters=3)
    assert float(lane.lane.x) == 1.0
    assert float(lane.lane.info["slope"]) == 10.0
    assert int(lane.lane.info["waiting"]) == 0
    assert not lane.ended


def test_between_entries_the_lane_stands_at_what_it_made() -> None:
    lane = Lane(iters=3, depth=4)
    assert [lane.step(2.0), lane.step(3.0, kept=False)] == [2.0, 3.0]
    assert lane.step(4.0) == 4.0  # the last one queued comes out, which is the one just made
    assert [lane.step(5.0, kept=False), lane.step(6.0, kept=False)] == [5.0, 6.0]
    assert lane.step(7.0, kept=False) == 2.0


def test_first_in_first_out() -> None:
    lane = Lane(iters=2, order="first", depth=4)
    lane.step(2.0)
    assert lane.step(3.0) == 2.0
    lane.step(4.0)
    assert lane.step(5.0, kept=False) == 3.0
    lane.step(6.0, kept=False)
    assert lane.step(7.0, kept=False) == 4.0


def test_an_empty_queue_ends_the_seed() -> None:
    lane = Lane(iters=2)
    lane.step(2.0, kept=False)
    assert not lane.ended
    lane.step(3.0, kept=False)
    assert lane.ended


def test_a_full_queue_drops_the_oldest_or_refuses_the_newest() -> None:
    newest = Lane(iters=4, depth=2)
    for x in (2.0, 3.0, 4.0):
        newest.step(x)
    assert newest.step(5.0, kept=False) == 4.0
    for x in (6.0, 7.0, 8.0):
        newest.step(x, kept=False)
    assert newest.step(9.0, kept=False) == 3.0, "2.0 was dropped"
    oldest = Lane(iters=4, depth=2, order="first")
    for x in (2.0, 3.0, 4.0):
        oldest.step(x)
    assert oldest.step(5.0, kept=False) == 2.0
    for x in (6.0, 7.0, 8.0):
        oldest.step(x, kept=False)
    assert oldest.step(9.0, kept=False) == 3.0
    for x in (6.0, 7.0, 8.0, 9.0):
        oldest.step(x, kept=False)
    assert oldest.ended, "4.0 was refused"


def test_caps_end_a_seed_that_would_go_on_for_ever() -> None:
    for cap, turns in (({"steps": 5}, 5), ({"pops": 3, "iters": 1}, 3)):
        lane = Lane(**{"iters": 1, "steps": 1000, "pops": 1000, **cap})
        count = 0
        while not lane.ended:
            lane.step(2.0 + count)
            count += 1
        assert count == turns


def test_near_copies_of_stored_failures_are_not_stored() -> None:
    lane = Lane(apart=0.05)  # the seed has length 1
    seen = []
    for x in (2.0, 2.04, 2.06, 2.1, 1.99):
        lane.step(x, failing=True)
        seen.append(lane.stored)
    assert seen == [True, False, True, False, False]


def test_without_a_distance_every_failure_is_stored_up_to_the_cap() -> None:
    lane = Lane(apart=0, cases=3)
    for _ in range(3):
        assert not lane.ended
        lane.step(2.0, failing=True)
        assert lane.stored
    assert lane.ended


def test_failures_that_are_not_kept_are_stored_only_where_the_recipe_says_so() -> None:
    strict, lax = Lane(), Lane(only_kept=False)
    for lane in (strict, lax):
        lane.step(2.0, kept=False, failing=True)
    assert not strict.stored
    assert lax.stored


@pytest.mark.parametrize("wrong", [{"iters": 0}, {"depth": 0}, {"order": "best"}, {"apart": -1.0}, {"cases": 0}])
def test_what_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="queue: "):
        bind("schedule", "queue", wrong)()
