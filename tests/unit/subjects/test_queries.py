"""The budget of questions."""

import pytest

from assay.core.errors import INTERRUPTED, BudgetSpent, UsageError
from assay.subjects.queries import Queries


def test_every_attempt_counts_and_the_sum_is_what_was_asked() -> None:
    queries = Queries(100)
    queries.take(40)
    queries.take(30, "repeats")
    queries.take(20, "retries")
    assert queries.to_json() == {
        "limit": 100,
        "asked": 90,
        "first": 40,
        "retries": 20,
        "repeats": 30,
        "known": 0,
    }
    assert queries.left() == 10


def test_what_would_exceed_the_budget_is_refused_and_not_counted() -> None:
    queries = Queries(10)
    queries.take(7)
    with pytest.raises(BudgetSpent, match="10 queries is spent: 7 were asked, 4 more are wanted") as spent:
        queries.take(4)
    assert (spent.value.limit, spent.value.asked, spent.value.wanted) == (10, 7, 4)
    assert spent.value.exit_code == INTERRUPTED
    assert queries.asked == 7
    queries.take(3)  # what is left may still be had
    assert queries.left() == 0


def test_without_a_limit_nothing_is_refused() -> None:
    queries = Queries()
    queries.take(10**9)
    assert queries.left() is None


def test_what_brought_no_answer_was_an_attempt_in_vain() -> None:
    queries = Queries(10)
    queries.take(6)
    queries.lost(6, "first")
    assert (queries.first, queries.retries, queries.asked) == (0, 6, 6)


def test_restored_counts_may_lie_above_a_lowered_limit() -> None:
    queries = Queries(10)
    queries.restore(asked=15, first=9, repeats=2)
    assert (queries.retries, queries.left()) == (4, 0)
    with pytest.raises(BudgetSpent):
        queries.take(1)


@pytest.mark.parametrize("limit", [0, -1, 2.5, True, "7"])
def test_a_limit_is_a_number_from_one_up(limit: object) -> None:
    with pytest.raises(UsageError, match="from 1 up"):
        Queries(limit)  # type: ignore[arg-type]  # that is the point
