"""The pool of parents: who is picked, who joins, who goes, and that a run read back has the same pool."""

import math
from typing import Any

import pytest
import torch

from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.engines.parents import Parents, blank_line
from assay.stages.schedules import Members
from assay.stages.schedules.pool import pool, recency


def seeds(n: int = 4) -> Cases:
    return Cases(torch.arange(float(n))[:, None].repeat(1, 2), torch.arange(n) % 2, torch.arange(n) + 100)


def child(of: list[int], row: list[int], value: float = 9.0) -> Cases:
    n = len(of)
    columns = {"parent": torch.tensor(of), "row": torch.tensor(row), "step": torch.arange(n)}
    lines = {"line_ref": torch.full((n, 2), value + 0.5), "line_used": torch.ones(n, dtype=torch.bool)}
    return Cases(torch.full((n, 2), value), torch.tensor(row) % 2, torch.tensor(row) + 100, columns | lines)


def members(taken: list[int], gained: list[int] | None = None, cursor: int = 0) -> Members:
    gained = gained or [0] * len(taken)
    entered = torch.zeros(len(taken), dtype=torch.float64)
    return Members(torch.tensor(taken), torch.tensor(gained), entered, 0.0, cursor)


def test_members_carry_their_root_and_what_the_line_handed_down() -> None:
    parents = Parents(pool(), seeds())
    parents.join(child([2], [2]))
    cases = parents.cases(torch.tensor([1, 4]))
    assert cases.x.tolist() == [[1.0, 1.0], [9.0, 9.0]]
    assert cases.info["seed_x"].tolist() == [[1.0, 1.0], [2.0, 2.0]]
    assert cases.info["row"].tolist() == [1, 2]
    assert cases.origin.tolist() == [101, 102]
    assert cases.y.tolist() == [1, 0]
    assert cases.info["line_ref"].tolist() == [[1.0, 1.0], [9.5, 9.5]]  # at a root its own input
    assert cases.info["line_used"].tolist() == [False, True]


def test_the_oldest_of_those_that_joined_go_first_and_seeds_stay() -> None:
    parents = Parents(pool(most=2), seeds())
    for value in (5.0, 6.0, 7.0):
        parents.join(child([0], [0], value))
    assert len(parents) == 6
    assert parents.cases(torch.tensor([0, 5, 6])).x[:, 0].tolist() == [0.0, 6.0, 7.0]  # numbers do not move
    picked = parents.pick(500, Stream(0)).unique().tolist()
    assert picked == [0, 1, 2, 3, 5, 6]
    parents.take(torch.tensor([4, 6]))  # the first is gone
    assert parents.taken.tolist() == [0, 0, 0, 0, 0, 1]
    assert parents.gained.tolist() == [3, 0, 0, 0, 0, 0]


def test_the_walk_prefers_who_was_taken_less() -> None:
    """P = max(0.3, 0.8 - f/5), as in DeepHunter's code, but for its p_min, which that code lets fall to 0.2."""
    often = [0] * 1000 + [1] * 1000 + [2] * 1000 + [3] * 1000 + [10] * 1000
    picks = pool(pick="prob").pick(members(often), 2300, Stream(0))
    assert bool((picks.diff() > 0).all())  # one walk, nobody twice
    shares = torch.bincount(picks // 1000, minlength=5)[:4] / 1000
    assert torch.allclose(shares, torch.tensor([0.8, 0.6, 0.4, 0.3]), atol=0.05)


def test_the_walk_goes_on_where_the_last_one_ended() -> None:
    schedule = pool(pick="prob", first=1.0, least=1.0)
    assert schedule.pick(members([0] * 5, cursor=3), 4, Stream(0)).tolist() == [3, 4, 0, 1]


def test_tensorfuzz_takes_one_of_the_newest_or_one_of_all() -> None:
    picks = pool(pick="recent", newest=5).pick(members([0] * 100), 60_000, Stream(0))
    share = torch.bincount(picks, minlength=100) / len(picks)
    assert torch.allclose(share[95:], torch.tensor(1 / 6 + 1 / 600), atol=0.01)
    assert abs(float(share[:95].sum()) - 95 / 600) < 0.01
    assert pool(pick="recent").pick(members([0]), 3, Stream(0)).tolist() == [0, 0, 0]


def test_the_last_is_taken_until_it_gains_nothing() -> None:
    schedule = pool(pick="last")
    assert schedule.pick(members([0, 0, 1, 1], [0, 0, 0, 2]), 3, Stream(0)).tolist() == [3, 1, 0]
    assert schedule.pick(members([1, 1], [0, 0]), 3, Stream(0)).tolist() == [1, 0, 1]  # all spent: again


def test_a_line_begins_with_the_input_where_it_has_its_shape() -> None:
    x = torch.rand(3, 1, 2, 2)
    assert torch.equal(blank_line(x, (1, 2, 2), torch.float32), x)
    assert blank_line(x, (), torch.bool).tolist() == [False] * 3


def test_the_walk_stays_where_it_was_when_old_members_go() -> None:
    parents = Parents(pool(most=4, first=1.0, least=1.0), seeds(2))
    for value in range(4):
        parents.join(child([0], [0], float(value)))
    seen: list[int] = []
    for value in range(4, 12):
        numbers = parents.pick(2, Stream(0))
        seen += numbers.tolist()
        parents.take(numbers)
        parents.join(child([0], [0], float(value)))
    assert seen[:6] == [0, 1, 3, 4, 5, 6], "each walk goes on behind the last member it took, whoever has left"


def test_time_prefers_the_newest_in_the_stated_proportion() -> None:
    """exp(t_i - t) over its sum, the paper's formula, at a temperature; equal times are equally likely."""
    entered = torch.tensor([0.0, 0.0, 1.0, 3.0], dtype=torch.float64)
    told = recency(entered, now=4.0, temperature=2.0).exp()
    weights = torch.exp((entered - 4.0) / 2.0)
    assert torch.allclose(told, weights / weights.sum(), atol=1e-15)
    drawn = torch.stack(
        [pool(pick="time", temperature=2.0).pick(_at(entered, 4.0), 1, Stream(i)) for i in range(4000)]
    ).flatten()
    assert torch.allclose(torch.bincount(drawn, minlength=4) / 4000, told.float(), atol=0.025)


def test_time_is_stable_when_the_run_is_old() -> None:
    entered = torch.tensor([0.0, 1e6, 1e6 - 1], dtype=torch.float64)
    told = recency(entered, now=2e6, temperature=1.0).exp()
    assert told.sum() == pytest.approx(1.0)
    assert told.tolist() == pytest.approx([0.0, 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1))])
    picks = pool(pick="time").pick(_at(entered, 2e6), 3, Stream(0)).tolist()
    assert sorted(picks) == [0, 1, 2]  # nobody twice while others are left
    assert picks[-1] == 0


def test_time_counts_rounds_over_the_seeds() -> None:
    parents = Parents(pool(pick="time"), seeds())
    parents.take(torch.tensor([0, 1, 2, 3, 0, 1]))
    parents.join(child([2], [2]))
    assert parents.now == 1.5
    assert parents.entered.tolist() == [0, 0, 0, 0, 1.5]
    assert parents.cases(torch.tensor([0, 3, 4])).info["taken"].tolist() == [2, 1, 0]


def test_depth_and_scores_go_from_member_to_member() -> None:
    parents = Parents(pool(), seeds())
    parents.scores = {"active": torch.tensor([1.0, 2.0, 3.0, 4.0])}
    parents.join(child([2], [2]).note(depth=torch.tensor([3]), active=torch.tensor([9.0])))
    cases = parents.cases(torch.tensor([1, 4]))
    assert cases.info["depth"].tolist() == [0, 3]
    assert cases.info["parent_active"].tolist() == [2.0, 9.0]


@pytest.mark.parametrize(
    ("parameters", "joins"),
    [({}, [True, False, True]), ({"failing": True}, [True, True, True]), ({"depth": 2}, [True, False, False])],
)
def test_who_joins(parameters: dict[str, Any], joins: list[bool]) -> None:
    kept, failing, depth = torch.tensor([True] * 3), torch.tensor([False, True, False]), torch.tensor([0, 1, 2])
    assert pool(**parameters).joins(kept, failing, depth).tolist() == joins
    assert not bool(pool(**parameters).joins(~kept, failing, depth).any())


def test_who_was_taken_often_enough_waits_until_everyone_was() -> None:
    """Without it the newest keep all the weight of an old run, and a generator makes the same of them again."""
    entered = torch.tensor([0.0, 0.0, 50.0, 50.0], dtype=torch.float64)

    def picked(taken: list[int], times: int) -> set[int]:
        how = pool(pick="time", times=times)
        drawn = [how.pick(_at(entered, 60.0)._replace(taken=torch.tensor(taken)), 2, Stream(i)) for i in range(20)]
        return set(torch.cat(drawn).tolist())

    assert picked([0, 0, 9, 9], times=0) == {2, 3}
    assert picked([0, 0, 5, 4], times=5) <= {0, 1, 3}
    assert picked([0, 0, 5, 5], times=5) == {0, 1}
    assert picked([5, 5, 5, 5], times=5) == {2, 3}  # all are spent: it begins again


def _at(entered: torch.Tensor, now: float) -> Members:
    none = torch.zeros(len(entered), dtype=torch.int64)
    return Members(none, none, entered, now, 0)
