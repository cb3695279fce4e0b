"""The Wilson interval of a share, and Newcombe's of the difference of two."""

from statistics import NormalDist

import pytest
from scipy import stats

from assay.core.stats import holm, mcnemar, newcombe, paired_shares, wilson


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [
        (90, 100, 0.82563, 0.94477),
        (5, 10, 0.23659, 0.76341),
        (0, 10, 0.0, 0.27753),
        (10, 10, 0.72247, 1.0),
        (1, 1, 0.20655, 1.0),
        (0, 1, 0.0, 0.79345),
    ],
)
def test_known_values(hits: int, n: int, low: float, high: float) -> None:
    assert wilson(hits, n) == pytest.approx((low, high), abs=5e-6)


@pytest.mark.parametrize("n", [1, 3, 10, 360, 10_000])
def test_agrees_with_scipy_and_holds_the_share(n: int) -> None:
    for hits in {0, 1, n // 3, n // 2, n - 1, n}:
        right = stats.binomtest(hits, n).proportion_ci(0.95, method="wilson")
        low, high = wilson(hits, n)
        assert (low, high) == pytest.approx((right.low, right.high), abs=1e-12)
        assert 0.0 <= low <= hits / n + 1e-15
        assert hits / n - 1e-15 <= high <= 1.0


def test_it_is_symmetric() -> None:
    low, high = wilson(3, 17)
    assert wilson(14, 17) == pytest.approx((1 - high, 1 - low), abs=1e-15)


def test_nothing_seen_is_nothing_known() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 10, 49, 360, 1000, 10_000, 123_457])
def test_the_ends_are_exact(n: int) -> None:
    assert wilson(0, n)[0] == 0.0
    assert wilson(n, n)[1] == 1.0


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [  # the examples of Newcombe (1998), method 10
        ((56, 70, 48, 80), 0.0524, 0.3339),
        ((9, 10, 3, 10), 0.1705, 0.8090),
        ((6, 7, 2, 7), 0.0582, 0.8062),
        ((5, 56, 0, 29), -0.0381, 0.1926),
        ((0, 10, 0, 20), -0.1611, 0.2775),
        ((0, 10, 0, 10), -0.2775, 0.2775),
        ((10, 10, 0, 20), 0.6791, 1.0),
        ((10, 10, 0, 10), 0.6075, 1.0),
    ],
)
def test_differences_of_the_paper(counts: tuple[int, int, int, int], low: float, high: float) -> None:
    assert newcombe(*counts) == pytest.approx((low, high), abs=5e-5)
    turned = newcombe(*counts[2:], *counts[:2])
    assert turned == pytest.approx((-high, -low), abs=5e-5)


def test_shares_of_inputs_are_compared_like_counts() -> None:
    """With differences of -1, 0 and 1 it is McNemar's test by the normal curve."""
    b, c = 300, 240
    z = (b - c) / (b + c) ** 0.5
    assert paired_shares([1.0] * b + [-1.0] * c + [0.0] * 500) == pytest.approx(2 * (1 - NormalDist().cdf(z)))
    assert paired_shares([1.0] * b + [-1.0] * c) == pytest.approx(mcnemar(b, c), abs=0.002)
    assert paired_shares([0.0] * 9) == 1.0
    assert paired_shares([0.5, -0.5]) == 1.0
    assert paired_shares([0.25] * 16) == pytest.approx(2 * (1 - NormalDist().cdf(4.0)))


def test_holm_steps_down_and_never_turns_two_round() -> None:
    assert holm({"a": 0.01, "b": 0.02, "c": 0.03, "d": 0.005}) == {"d": 0.02, "a": 0.03, "b": 0.04, "c": 0.04}
    assert holm({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}


def test_a_difference_to_nothing_seen_is_not_known() -> None:
    assert newcombe(3, 4, 0, 0) == newcombe(0, 0, 3, 4) == (-1.0, 1.0)
