"""Delta debugging on sets whose answers are known, and on predicates without any order."""

import pytest
import torch
from torch import Tensor

from assay.core.ddmin import Fails, Reduced, ddmin
from assay.core.errors import UsageError

ATOMS = 8


def planted(needs: Tensor) -> Fails:
    """A case fails while it has all the atoms it needs."""
    return lambda rows, masks: (masks | ~needs[rows]).all(1)


def every(n: int, width: int) -> Tensor:
    return torch.ones(n, width, dtype=torch.bool)


def subsets(n: int, width: int, count: int, seed: int = 0) -> Tensor:
    """``count`` of ``width`` atoms for each of n cases."""
    rank = torch.rand(n, width, generator=torch.Generator().manual_seed(seed)).argsort(1).argsort(1)
    return rank < count


def table(n: int, share: float, seed: int = 0) -> Tensor:
    """A predicate for each case with no order at all: whether it fails with each of the 256 sets of eight atoms."""
    fails = torch.rand(n, 1 << ATOMS, generator=torch.Generator().manual_seed(seed)) < share
    fails[:, -1] = True
    return fails


def looked_up(fails: Tensor) -> Fails:
    power = 1 << torch.arange(ATOMS)
    return lambda rows, masks: fails[rows, (masks * power).sum(1)]


def one_minimal(kept: Tensor, fails: Fails) -> Tensor:
    """Which cases fail with what is kept and with no single atom less, (N,): written out."""
    good = []
    for row, mask in enumerate(kept):
        smaller = [mask & (torch.arange(len(mask)) != atom) for atom in mask.nonzero().flatten()]
        masks = torch.stack([mask, *smaller])
        answers = fails(torch.full((len(masks),), row), masks)
        good.append(bool(answers[0]) and not bool(answers[1:].any()))
    return torch.tensor(good, dtype=torch.bool)


@pytest.mark.parametrize("count", [1, 3, 40])
def test_what_is_needed_is_found_exactly(count: int) -> None:
    needs = subsets(30, 40, count)
    found = ddmin(every(30, 40), planted(needs))
    assert torch.equal(found.kept, needs)
    assert bool(found.minimal.all())
    assert bool(found.failing.all())


def test_cases_with_needs_of_every_size_go_side_by_side() -> None:
    needs = torch.cat([subsets(1, 33, count, seed=count) for count in range(34)])
    found = ddmin(every(34, 33), planted(needs))
    assert torch.equal(found.kept, needs)
    assert bool(found.minimal.all())


def test_few_of_many_take_few_questions() -> None:
    found = ddmin(every(20, 784), planted(subsets(20, 784, 3)))
    # Ten sizes of chunks, at most six chunks of each, how many can go together, and what is asked at the ends.
    assert int(found.asked.max()) < 80


@pytest.mark.parametrize("share", [0.05, 0.3, 0.7])
def test_predicates_without_order_end_in_a_failing_set_that_is_minimal(share: float) -> None:
    fails = looked_up(table(100, share))
    found = ddmin(every(100, ATOMS), fails)
    assert torch.equal(one_minimal(found.kept, fails), torch.ones(100, dtype=torch.bool))
    assert bool(found.minimal.all())


def test_atoms_that_only_go_in_pairs() -> None:
    """Fails with an even number of atoms of six: no single one can go, all of them can."""
    found = ddmin(every(1, 6), lambda rows, masks: masks.sum(1) % 2 == 0)
    assert int(found.kept.sum()) == 0, "nothing at all is asked about first"
    found = ddmin(every(1, 6), lambda rows, masks: (masks.sum(1) % 2 == 0) & masks.any(1))
    assert bool(found.minimal.all())
    assert int(found.kept.sum()) == 2


def test_an_atom_that_can_go_only_after_a_later_one() -> None:
    """The first may go once the last went, which is asked about after it: only a second look finds that."""
    fails = lambda rows, masks: masks[:, 1] & (masks[:, 0] | ~masks[:, 2])  # noqa: E731
    found = ddmin(every(1, 3), fails)
    assert found.kept.tolist() == [[False, True, False]]


def test_only_the_atoms_that_were_given_are_asked_about() -> None:
    start = subsets(20, 30, 12, seed=1)
    needs = start & subsets(20, 30, 15, seed=2)
    seen = torch.zeros(20, 30, dtype=torch.bool)

    def fails(rows: Tensor, masks: Tensor) -> Tensor:
        for row, mask in zip(rows.tolist(), masks, strict=True):
            seen[row] |= mask
        return planted(needs)(rows, masks)

    assert torch.equal(ddmin(start, fails).kept, needs)
    assert not bool((seen & ~start).any())


def test_questions_are_counted_and_never_more_than_the_limit_at_once() -> None:
    needs, asked = subsets(9, 50, 4), torch.zeros(9, dtype=torch.int64)

    def fails(rows: Tensor, masks: Tensor) -> Tensor:
        assert 0 < len(rows) == len(masks) <= 7
        asked.index_add_(0, rows, torch.ones_like(rows))
        return planted(needs)(rows, masks)

    found = ddmin(every(9, 50), fails, limit=7)
    assert torch.equal(found.asked, asked)
    assert torch.equal(found.kept, needs)
    assert same(found, ddmin(every(9, 50), planted(needs)))


def same(one: Reduced, other: Reduced) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_case_is_worked_alike_alone_and_among_others() -> None:
    fails = table(12, 0.4)
    together = ddmin(every(12, ATOMS), looked_up(fails))
    for row in range(12):
        alone = ddmin(every(1, ATOMS), looked_up(fails[row : row + 1]))
        assert same(alone, Reduced(*(part[row : row + 1] for part in together)))


def test_cases_that_do_not_fail_come_back_untouched_and_are_told() -> None:
    needs = subsets(4, 10, 2)
    fails = lambda rows, masks: planted(needs)(rows, masks) & (rows != 2)  # noqa: E731
    start = every(4, 10)
    found = ddmin(start, fails)
    assert found.failing.tolist() == found.minimal.tolist() == [True, True, False, True]
    assert bool(found.kept[2].all())
    assert int(found.asked[2]) == 1
    assert torch.equal(found.kept[[0, 1, 3]], needs[[0, 1, 3]])
    assert bool(start.all()), "what was given is left alone"


def test_a_case_that_fails_with_nothing_keeps_nothing() -> None:
    found = ddmin(every(3, 5), lambda rows, masks: torch.ones(len(rows), dtype=torch.bool))
    assert not bool(found.kept.any())
    assert bool(found.minimal.all())
    assert found.asked.tolist() == [2, 2, 2]


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_no_case_and_no_atom(shape: tuple[int, int]) -> None:
    found = ddmin(every(*shape), lambda rows, masks: masks.all(1))
    assert tuple(found.kept.shape) == shape
    assert len(found.asked) == shape[0]
    assert bool(found.minimal.all())


@pytest.mark.parametrize("budget", [1, 2, 3, 7, 12, 20, 40])
def test_a_budget_is_kept_and_what_is_reached_fails(budget: int) -> None:
    fails = looked_up(table(60, 0.3))
    found = ddmin(every(60, ATOMS), fails, budget=budget)
    assert int(found.asked.max()) <= budget
    assert bool(fails(torch.arange(60), found.kept).all())
    shown = found.minimal
    assert bool(one_minimal(found.kept, fails)[shown].all())
    if budget < 3:
        assert not bool(shown[found.kept.any(1)].any()), "two questions show nothing of a single atom"


@pytest.mark.parametrize(
    ("needed", "budget", "kept", "minimal", "asked"),
    [
        (True, 1, True, False, 1),
        (True, 2, True, True, 2),
        (True, 3, True, True, 2),
        (False, 1, True, False, 1),
        (False, 2, False, True, 2),
    ],
)
@pytest.mark.parametrize("width", [1, 5])
def test_a_single_atom_is_minimal_once_nothing_at_all_was_asked_about(
    width: int, needed: bool, budget: int, kept: bool, minimal: bool, asked: int
) -> None:
    start = torch.arange(width)[None] == width // 2
    found = ddmin(start, planted(start & needed), budget=budget)
    assert torch.equal(found.kept, start & kept)
    assert (found.failing.tolist(), found.minimal.tolist(), found.asked.tolist()) == ([True], [minimal], [asked])


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_what_is_called_minimal_is_whatever_the_budget_and_the_start(share: float) -> None:
    """Starts of no atom to all of them, budgets of no question to many, side by side; checked by brute force."""
    n = 900
    start = torch.cat([subsets(n // 9, ATOMS, count, seed=count) for count in range(9)])
    budget = torch.arange(n) % 13
    fails = looked_up(table(n, share, seed=3))
    found = ddmin(start, fails, budget=budget)
    assert bool((found.asked <= budget).all())
    assert not bool((found.kept & ~start).any())
    assert torch.equal(found.failing, fails(torch.arange(n), start) & (budget > 0))
    assert bool(one_minimal(found.kept, fails)[found.minimal].all())
    shown = found.minimal & found.kept.any(1)
    assert int(shown.sum()) > 20
    assert int(budget[shown].min()) == 2, "the case as it is and nothing at all"
    assert not bool(found.minimal[budget < 2].any())


def test_budgets_of_one_case_each() -> None:
    needs = subsets(3, 64, 3)
    found = ddmin(every(3, 64), planted(needs), budget=torch.tensor([1000, 0, 10]))
    assert found.minimal.tolist() == [True, False, False]
    assert found.failing.tolist() == [True, False, True]
    assert bool(found.kept[1].all()), "nothing was asked of it"
    assert int(found.asked[1]) == 0
    assert bool(planted(needs)(torch.tensor([2]), found.kept[2:]).all())
    assert 3 < int(found.kept[2].sum()) < 64


def test_numbers_let_go_first_what_matters_least() -> None:
    rng = torch.Generator().manual_seed(0)
    weight = torch.rand(50, 60, generator=rng)
    bar = weight.sum(1) / 3

    def surely(rows: Tensor, masks: Tensor) -> Tensor:
        return (weight[rows] * masks).sum(1) - bar[rows]

    by_number = ddmin(every(50, 60), surely)
    by_bool = ddmin(every(50, 60), lambda rows, masks: surely(rows, masks) > 0)
    for found in (by_number, by_bool):
        assert bool(one_minimal(found.kept, lambda rows, masks: surely(rows, masks) > 0).all())
    assert by_number.kept.sum() < 0.9 * by_bool.kept.sum()
    assert by_number.asked.sum() < by_bool.asked.sum()


def test_nan_is_no_failure() -> None:
    needs = subsets(5, 20, 2)

    def surely(rows: Tensor, masks: Tensor) -> Tensor:
        return torch.where(planted(needs)(rows, masks), 1.0, torch.nan)

    assert torch.equal(ddmin(every(5, 20), surely).kept, needs)


def test_what_cannot_be_meant_is_refused() -> None:
    always = lambda rows, masks: masks.any(1)  # noqa: E731
    with pytest.raises(UsageError, match=r"bools of shape \(cases, atoms\)"):
        ddmin(torch.ones(3), always)
    with pytest.raises(UsageError, match="from 1 up"):
        ddmin(every(2, 2), always, budget=0)
    with pytest.raises(UsageError, match="one for each case"):
        ddmin(every(2, 2), always, budget=torch.tensor([1, 2, 3]))
    with pytest.raises(UsageError, match="at least 1"):
        ddmin(every(2, 2), always, limit=0)
    with pytest.raises(UsageError, match="answered one by one"):
        ddmin(every(2, 2), lambda rows, masks: masks)
