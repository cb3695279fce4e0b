"""Two models on the same inputs: known intervals, exact p, and an n that decides as often as it says."""

import math

import pytest
import torch

from assay.core.errors import NothingToTest, UsageError
from assay.core.stats import difference_needed, mcnemar, newcombe, share_needed, tango, wilson, z_of
from assay.engines.paired import of_counts, paired


@pytest.mark.parametrize(
    ("b", "c", "n", "low", "high"),
    [
        (12, 2, 50, 0.0611, 0.3447),
        (0, 0, 50, -(1.959964**2) / (50 + 1.959964**2), 1.959964**2 / (50 + 1.959964**2)),  # closed forms
        (50, 0, 50, (50 - 1.959964**2) / (50 + 1.959964**2), 1.0),
    ],
)
def test_the_score_interval_is_tangos(b: int, c: int, n: int, low: float, high: float) -> None:
    assert tango(b, c, n) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(("b", "c", "n"), [(12, 2, 50), (3, 9, 400), (1, 0, 30), (0, 7, 200), (40, 41, 90)])
def test_its_ends_solve_the_score_equation_of_the_most_likely_model(b: int, c: int, n: int) -> None:
    """Against a search for the likeliest probabilities that knows no closed form."""
    for end in tango(b, c, n):
        least, most = max(0.0, -end), (1 - end) / 2
        grid = torch.linspace(least + 1e-9, most - 1e-9, 200_001, dtype=torch.float64)
        rest = (1 - 2 * grid - end).clamp(min=1e-300)
        logs = b * (grid + end).clamp(min=1e-300).log() + c * grid.log() + (n - b - c) * rest.log()
        q = float(grid[logs.argmax()])
        spread = math.sqrt(n * (2 * q + end - end**2))
        assert abs(b - c - n * end) / spread == pytest.approx(z_of(0.95), rel=2e-3)


def test_the_interval_turns_with_its_models() -> None:
    low, high = tango(12, 2, 50)
    assert tango(2, 12, 50) == pytest.approx((-high, -low))
    assert tango(5, 5, 100)[0] == pytest.approx(-tango(5, 5, 100)[1])
    assert tango(0, 0, 0) == (-1.0, 1.0)


def test_a_lower_level_is_a_narrower_interval_inside() -> None:
    for wide, narrow in (
        (tango(12, 2, 50), tango(12, 2, 50, 0.8)),
        (wilson(9, 30), wilson(9, 30, 0.8)),
        (newcombe(9, 30, 7, 30), newcombe(9, 30, 7, 30, 0.8)),
    ):
        assert wide[0] < narrow[0] < narrow[1] < wide[1]


@pytest.mark.parametrize(("b", "c"), [(12, 2), (2, 12), (1, 0), (0, 0), (7, 7), (300, 200), (0, 40)])
def test_p_is_the_sum_of_the_binomial(b: int, c: int) -> None:
    n = b + c
    tail = sum(math.comb(n, k) for k in range(min(b, c) + 1)) * 2 / 2**n
    assert mcnemar(b, c) == pytest.approx(min(1.0, tail), rel=1e-9)


def test_pairing_counts_what_only_one_model_gets_right() -> None:
    old = torch.tensor([1, 1, 1, 1, 0, 0, 1, 1], dtype=torch.bool)
    new = torch.tensor([1, 0, 0, 1, 1, 0, 1, 1], dtype=torch.bool)
    found = paired(old, new)
    assert (found.n, found.b, found.c, found.difference) == (8, 2, 1, 0.125)
    assert found.ci95 == tango(2, 1, 8)
    assert found.p == mcnemar(2, 1) == 1.0
    assert found.to_json()["ci95"] == [round(end, 6) for end in found.ci95]


def test_needed_is_told_only_where_the_bound_lies_within() -> None:
    assert of_counts(30, 0, 100).needed is None
    assert of_counts(5, 2, 100).needed == difference_needed(0.05, 0.02, 0.0)
    assert of_counts(5, 3, 100, bound=0.02).needed is None, "on the bound no n decides"
    assert of_counts(3, 3, 100).needed is None
    assert of_counts(30, 0, 100, bound=0.3).needed is None


def test_unlike_inputs_are_refused() -> None:
    with pytest.raises(UsageError, match="same inputs"):
        paired(torch.ones(3, dtype=torch.bool), torch.ones(4, dtype=torch.bool))
    with pytest.raises(NothingToTest):
        paired(torch.ones(0, dtype=torch.bool), torch.ones(0, dtype=torch.bool))


@pytest.mark.parametrize(
    ("b", "c", "bound"), [(0.06, 0.02, 0.0), (0.03, 0.01, 0.05), (0.0, 0.0, 0.02), (0.1, 0.0, 0.02)]
)
def test_as_many_pairs_as_needed_decide_in_8_of_10_repeats(b: float, c: float, bound: float) -> None:
    needed = difference_needed(b, c, bound)
    assert needed is not None
    rng = torch.Generator().manual_seed(0)
    kinds = torch.multinomial(torch.tensor([b, c, 1 - b - c]), 600 * needed, replacement=True, generator=rng)
    repeats = kinds.view(600, needed)
    decided = 0
    for only, other in zip((repeats == 0).sum(1).tolist(), (repeats == 1).sum(1).tolist(), strict=True):
        low, high = tango(only, other, needed)
        decided += high <= bound if b - c < bound else low > bound
    assert decided >= 0.8 * 600
    assert decided <= 0.93 * 600 or not b * c, "and not far more than it takes"


@pytest.mark.parametrize(("share", "bound"), [(0.45, 0.4), (0.3, 0.4), (0.97, 0.95), (1.0, 0.99), (0.02, 0.05)])
def test_as_many_inputs_as_needed_decide_in_8_of_10_repeats(share: float, bound: float) -> None:
    needed = share_needed(share, bound)
    assert needed is not None
    rng = torch.Generator().manual_seed(1)
    hits = (torch.rand(600, needed, generator=rng) < share).sum(1).tolist()
    sure = [wilson(h, needed)[0] >= bound if share > bound else wilson(h, needed)[1] < bound for h in hits]
    assert sum(sure) >= 0.8 * 600
    assert share_needed(bound, bound) is None
