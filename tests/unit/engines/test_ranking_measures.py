"""Measures of an order against sums by hand, and what chance gives."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.core.randomness import Stream
from assay.engines.ranking_measures import NUMBERS, apfd, bounds, chance, measured


def order(text: str) -> torch.Tensor:
    """Tests in their order: x fails."""
    return torch.tensor([c == "x" for c in text])


def test_apfd_by_hand() -> None:
    assert apfd(order("x..x.")) == pytest.approx(1 - (1 + 4) / (2 * 5) + 1 / 10)
    assert apfd(order(".x..")) == pytest.approx(1 - 2 / 4 + 1 / 8)
    assert apfd(order("x")) == pytest.approx(0.5)
    assert apfd(order("....")) is None


def test_apfd_reaches_its_bounds() -> None:
    assert list(bounds(3, 10)) == pytest.approx([0.15, 0.85])
    assert apfd(order("xxx.......")) == pytest.approx(0.85)
    assert apfd(order(".......xxx")) == pytest.approx(0.15)
    assert measured(order("xxx......."), 3).apfd_norm == pytest.approx(1.0)
    assert measured(order(".......xxx"), 3).apfd_norm == pytest.approx(0.0)
    for n in range(2, 30):  # and never leaves them by rounding, as 2 of 5 and 3 of 6 would
        for m in range(1, n):
            worst, best = measured(order("." * (n - m) + "x" * m), 1), measured(order("x" * m + "." * (n - m)), 1)
            assert str(worst.to_json()["apfd_norm"]) == "0.0"
            assert best.apfd_norm is not None
            assert 1 - 1e-12 < best.apfd_norm <= 1


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_apfd_is_the_area_under_the_curve_of_faults_found(failing: list[bool]) -> None:
    """APFD is the mean, over tests, of the share of faults found just before and just after each."""
    n, m = len(failing), sum(failing)
    if not m:
        assert apfd(torch.tensor(failing)) is None
        return
    found = [sum(failing[:i]) / m for i in range(n + 1)]
    area = sum((found[i] + found[i + 1]) / 2 for i in range(n)) / n
    assert apfd(torch.tensor(failing)) == pytest.approx(area)


def test_the_first_k() -> None:
    told = measured(order("x.x.x....."), 4)
    assert (told.k, told.faults, told.share) == (4, 2, 0.5)
    assert told.found == pytest.approx(2 / 3)
    assert told.rate == pytest.approx(2 / 3), "three of the first four could have been faults"
    assert measured(order("x.x.x....."), 2).rate == pytest.approx(1 / 2), "of the first two, two could have been"
    whole = measured(order("x.x"), 50)
    assert (whole.k, whole.faults, whole.found, whole.rate) == (3, 2, 1.0, 1.0)


def test_where_every_order_is_equal_nothing_is_told() -> None:
    every, none = measured(order("xxxx"), 2), measured(order("...."), 2)
    assert every.apfd == pytest.approx(0.5)
    assert every.apfd_norm is None
    assert (every.share, every.found, every.rate) == (1.0, 0.5, 1.0)
    assert (none.apfd, none.apfd_norm, none.found, none.rate) == (None, None, None, None)
    assert (none.faults, none.share) == (0, 0.0)
    drawn = chance(order("...."), 2, Stream(0), 5)
    assert (drawn.mean.apfd, drawn.spread.apfd, drawn.mean.share, drawn.spread.share) == (None, None, 0.0, 0.0)


def test_orders_drawn_at_random_lie_round_what_is_expected() -> None:
    failing = order("xx.." * 6 + "....")
    told = chance(failing, 7, Stream(1), 2000)
    assert told.expected.apfd == 0.5
    assert told.expected.apfd_norm == pytest.approx(0.5)
    assert told.expected.faults == pytest.approx(7 * 12 / 28)
    assert told.expected.share == pytest.approx(12 / 28)
    assert told.expected.found == pytest.approx(7 / 28)
    assert told.expected.rate == pytest.approx(3 / 7)
    for name in NUMBERS:
        expected, mean, spread = (getattr(part, name) for part in (told.expected, told.mean, told.spread))
        assert abs(mean - expected) < 4 * spread / math.sqrt(2000)
    # Of faults among 7 drawn from 28 without putting back, and of the mean rank of 12 of 28.
    assert told.spread.faults == pytest.approx(math.sqrt(7 * (12 / 28) * (16 / 28) * 21 / 27), rel=0.1)
    assert told.spread.apfd == pytest.approx(math.sqrt(16 * 29 / (12 * 12)) / 28, rel=0.1)


def test_chance_repeats_and_says_how_often_it_was_tried() -> None:
    failing = order("x..x......")
    assert chance(failing, 3, Stream(1)) == chance(failing, 3, Stream(1))
    assert chance(failing, 3, Stream(1)) != chance(failing, 3, Stream(2))
    told = chance(failing, 30, Stream(1)).to_json()
    assert told["drawn"] == 100
    assert told["mean"]["k"] == 10
