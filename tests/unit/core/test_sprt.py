"""The sequential test against a scalar one written from the textbook, its error rates, and the order of three tiers."""

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from assay.core.errors import UsageError
from assay.core.sprt import LEAST, SENSITIVE, STABLE, UNDECIDED, Sprt, three_tiers, upper_mean

SHARES = st.floats(0.001, 0.999)
RISKS = st.floats(0.001, 0.49)


def textbook(p0: float, p1: float, alpha: float, beta: float, answers: list[bool]) -> tuple[int, int, float]:
    """Wald's test, one observation after the other: the decision, how many it took, and how near it came to a tie."""
    ratio, nearest = 0.0, math.inf
    for n, changed in enumerate(answers, 1):
        ratio += math.log(p1 / p0) if changed else math.log((1 - p1) / (1 - p0))
        upper, lower = math.log((1 - beta) / alpha), math.log(beta / (1 - alpha))
        nearest = min(nearest, abs(ratio - upper), abs(ratio - lower))
        if ratio >= upper:
            return SENSITIVE, n, nearest
        if ratio <= lower:
            return STABLE, n, nearest
    return UNDECIDED, len(answers), nearest


def walked(test: Sprt, answers: list[bool]) -> tuple[int, int]:
    """The first decision along the counts of a sequence, all at once."""
    changes = torch.tensor(answers, dtype=torch.int64).cumsum(0)
    decided = test.decided(changes, torch.arange(1, len(answers) + 1))
    when = decided.nonzero()
    return (int(decided[when[0]]), int(when[0]) + 1) if len(when) else (UNDECIDED, len(answers))


@given(pair=st.tuples(SHARES, SHARES), alpha=RISKS, beta=RISKS, answers=st.lists(st.booleans(), max_size=400))
@settings(max_examples=400, deadline=None)
def test_decisions_are_those_of_the_textbook(
    pair: tuple[float, float], alpha: float, beta: float, answers: list[bool]
) -> None:
    p0, p1 = sorted(pair)
    assume(p0 < p1)
    decision, n, nearest = textbook(p0, p1, alpha, beta, answers)
    assume(nearest > 1e-8)  # sums and products round differently
    assert walked(Sprt(p0, p1, alpha, beta), answers) == (decision, n)


@given(seed=st.integers(0, 10**6), share=st.floats(0.0, 0.3), kappa=st.floats(0.01, 0.2), delta=st.floats(0.05, 0.9))
@settings(max_examples=200, deadline=None)
def test_decisions_are_those_of_the_textbook_on_rare_changes(
    seed: int, share: float, kappa: float, delta: float
) -> None:
    """As mutants give them: long sequences with few changes."""
    answers = (torch.rand(600, generator=torch.Generator().manual_seed(seed)) < share).tolist()
    decision, n, nearest = textbook(kappa * (1 - delta), kappa * (1 + delta), 0.05, 0.05, answers)
    assume(nearest > 1e-8)
    assert walked(Sprt.around(kappa, delta), answers) == (decision, n)


def test_numbers_by_hand() -> None:
    """What the specification works out for kappa 0.03: a change adds 1.10, none takes off 0.031, both bounds 2.944."""
    test = Sprt.around(0.03, 0.5)
    assert (test.p0, test.p1) == pytest.approx((0.015, 0.045))
    assert test.steps == pytest.approx((1.0986, -0.0309), abs=1e-4)
    assert (test.upper, test.lower) == pytest.approx((2.9444, -2.9444), abs=1e-4)
    llr = test.llr(torch.tensor([3, 0]), torch.tensor([13, 96]))
    assert llr.dtype == torch.float64
    assert llr.tolist() == pytest.approx([3 * 1.09861 - 10 * 0.030933, -96 * 0.030933], abs=1e-3)
    # Three changes decide as long as no more than 11 mutants had none.
    decided = test.decided(torch.tensor([3, 3, 0, 0]), torch.tensor([14, 15, 95, 96]))
    assert decided.dtype == torch.int8
    assert decided.tolist() == [SENSITIVE, UNDECIDED, UNDECIDED, STABLE]


def test_a_ratio_on_the_bound_decides() -> None:
    test = Sprt(0.05, 0.95)  # one answer is worth what the bounds are, but for rounding
    assert test.decided(torch.tensor([1, 0, 0]), torch.tensor([1, 1, 0])).tolist() == [SENSITIVE, STABLE, UNDECIDED]


@pytest.mark.parametrize(("p0", "p1", "alpha", "beta"), [(0.015, 0.045, 0.05, 0.05), (0.2, 0.4, 0.1, 0.02)])
def test_error_rates_stay_within_walds_bounds(p0: float, p1: float, alpha: float, beta: float) -> None:
    """Never cut short, on streams whose share is exactly p0, then p1: alpha/(1-beta) and beta/(1-alpha) at most."""
    test, streams = Sprt(p0, p1, alpha, beta), 20_000
    rng = torch.Generator().manual_seed(5)
    for share, wrong, bound in ((p0, SENSITIVE, alpha / (1 - beta)), (p1, STABLE, beta / (1 - alpha))):
        changes = torch.zeros(streams, dtype=torch.int64)
        errors, asked = 0, 0
        while len(changes):
            asked += 1
            changes = changes + (torch.rand(len(changes), generator=rng) < share)
            decided = test.decided(changes, torch.tensor(asked))
            errors += int((decided == wrong).sum())
            changes = changes[decided == UNDECIDED]
        error = math.sqrt(bound * (1 - bound) / streams)
        assert 0.3 * bound < errors / streams <= bound + 3 * error


def test_kappa_at_the_ends() -> None:
    assert Sprt.around(0.0, 0.1) == Sprt.around(LEAST, 0.1)
    high = Sprt.around(0.9, 0.5)
    assert (high.p0, high.p1) == pytest.approx((0.45, 0.95))
    with pytest.raises(UsageError, match="kappa"):
        Sprt.around(1.0, 0.1)
    for delta in (0.0, 1.0):
        with pytest.raises(UsageError, match="delta"):
            Sprt.around(0.1, delta)


@pytest.mark.parametrize(
    "wrong", [(0.0, 0.1), (0.1, 0.1), (0.2, 0.1), (0.5, 1.0), (0.1, 0.2, 0.0), (0.1, 0.2, 0.05, 1.0), (math.nan, 0.5)]
)
def test_nonsense_is_refused(wrong: tuple[float, ...]) -> None:
    with pytest.raises(UsageError):
        Sprt(*wrong)


def test_upper_mean_by_hand() -> None:
    assert upper_mean(torch.tensor([0.0, 0.1, 0.2, 0.1])) == pytest.approx(0.1 + 2.576 * 0.0816497 / 2, abs=1e-6)
    assert upper_mean(torch.tensor([0.25])) == 0.25
    with pytest.raises(UsageError, match="none"):
        upper_mean(torch.tensor([]))


def test_three_tiers_by_hand() -> None:
    rows = [
        # decision, at, llr a mutant, score
        (STABLE, 96, -0.03, 0.9),
        (UNDECIDED, 300, 0.001, 0.1),
        (SENSITIVE, 40, 0.1, 0.2),
        (STABLE, 200, -0.01, 0.1),
        (SENSITIVE, 3, 1.0, 0.3),
        (UNDECIDED, 300, 0.004, 0.05),
        (SENSITIVE, 40, 0.1, 0.4),
        (UNDECIDED, 300, 0.001, 0.2),
        (STABLE, 96, -0.03, 0.9),  # ties with the first in everything
    ]
    decision, at, llr, score = (torch.tensor(column) for column in zip(*rows, strict=True))
    order = three_tiers(decision.to(torch.int8), at, llr.double(), score.double())
    assert order.tolist() == [4, 6, 2, 5, 7, 1, 3, 0, 8]


@given(
    rows=st.lists(
        st.tuples(st.sampled_from((-1, 0, 1)), st.integers(1, 5), st.integers(-3, 3), st.integers(0, 3)), max_size=30
    )
)
@settings(deadline=None)
def test_three_tiers_sort_like_a_plain_key(rows: list[tuple[int, int, int, int]]) -> None:
    def key(i: int) -> tuple[int, int, int, int]:
        decision, at, llr, score = rows[i]
        return (-decision, {1: at, 0: -llr, -1: -at}[decision], -score, i)

    columns = [torch.tensor([row[c] for row in rows]) for c in range(4)]
    assert three_tiers(*columns).tolist() == sorted(range(len(rows)), key=key)
