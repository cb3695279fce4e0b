"""Selectors on scores made by hand: which rows, how many, in which order."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import bind, entries
from assay.stages.scores.fol import fol
from assay.stages.scores.gini import gini
from assay.stages.selectors.bi_end import bi_end
from assay.stages.selectors.k_multisection import k_multisection, section_of
from assay.stages.selectors.ranking import ranked, scored, turns
from assay.stages.selectors.spread import spread
from assay.stages.selectors.top import top
from assay.subjects.bench import Bench
from assay.subjects.sources.module import ModuleTarget

RNG = Stream(7)
NAN, INF = float("nan"), float("inf")
SCORED = [entry.name for entry in entries("selector") if any(p.name == "score" for p in entry.parameters)]


def bench() -> Bench:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
    return Bench(ModuleTarget(net, InputSpec((5,), (0.0, 1.0), ("a", "b", "c"))), chunks=Chunks(4))


def with_scores(values: list[float] | Tensor, y: list[int] | None = None) -> Cases:
    """Cases whose column ``s`` holds these scores."""
    column = torch.as_tensor(values, dtype=torch.float32)
    n = len(column)
    return Cases.of(torch.zeros(n, 5), torch.tensor(y or [0] * n, dtype=torch.int64)).note(s=column)


def chosen(name: str, cases: Cases, k: int, **params: object) -> list[int]:
    rows: list[int] = bind("selector", name, {"score": "s", **params})(bench(), cases, k, rng=RNG).tolist()
    return rows


def test_bi_end_of_rising_scores_is_both_ends() -> None:
    rising = with_scores(torch.arange(100.0))
    assert chosen("bi_end", rising, 6) == [0, 1, 2, 97, 98, 99]
    assert chosen("bi_end", rising, 7) == [0, 1, 2, 96, 97, 98, 99], "the odd one is of the largest"
    assert chosen("bi_end", rising, 1) == [99]
    assert chosen("bi_end", with_scores([3.0, 1.0, 2.0, 0.0]), 2) == [3, 0]
    for k in range(101):
        assert len(set(chosen("bi_end", rising, k))) == k


def test_top_is_best_first() -> None:
    cases = with_scores([2.0, 5.0, 1.0, 5.0, INF, -INF])
    assert chosen("top", cases, 4) == [4, 1, 3, 0]
    assert chosen("top", cases, 3, largest=False) == [5, 2, 0]


def test_equal_scores_come_in_the_order_of_rows() -> None:
    equal = with_scores([1.0] * 300)
    assert chosen("top", equal, 4) == [0, 1, 2, 3]
    assert chosen("top", equal, 4, largest=False) == [0, 1, 2, 3]
    assert chosen("bi_end", equal, 4) == [0, 1, 298, 299]
    assert chosen("spread", equal, 4) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", SCORED)
def test_edges(name: str) -> None:
    cases = with_scores([4.0, NAN, 2.0, 2.0], [0, 0, 1, 2])
    assert chosen(name, cases, 0) == []
    assert sorted(chosen(name, cases, 4)) == [0, 1, 2, 3]
    assert sorted(chosen(name, cases, 9)) == [0, 1, 2, 3]
    assert 1 not in chosen(name, cases, 3), "a score that is no number ranks below everything"
    assert chosen(name, with_scores([1.0]), 1) == [0]
    assert chosen(name, with_scores([NAN]), 5) == [0]
    assert chosen(name, with_scores([]), 5) == []


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.one_of(st.floats(width=32), st.sampled_from([0.0, 1.0, INF, -INF, NAN])), max_size=40),
    k=st.integers(0, 50),
)
def test_exactly_k_distinct_rows_and_numbers_first(values: list[float], k: int) -> None:
    y = [row % 3 for row in range(len(values))]
    cases = with_scores(values, y)
    numbers = int((~cases.info["s"].isnan()).sum())
    for name in SCORED:
        rows = chosen(name, cases, k)
        assert len(rows) == min(k, len(values))
        assert len(set(rows)) == len(rows)
        assert int((~cases.info["s"][rows].isnan()).sum()) == min(k, numbers), "NaN only where nothing else is left"
        assert rows == chosen(name, cases, k), "the same stream gives the same rows"


def per_section(cases: Cases, rows: list[int], sections: int) -> list[int]:
    return section_of(cases.info["s"].double(), sections)[rows].bincount(minlength=sections).tolist()


def test_sections_are_equally_wide_and_the_last_is_closed() -> None:
    values = torch.tensor([0.0, 0.99, 1.0, 2.5, 3.0, 3.99, 4.0], dtype=torch.float64)
    assert section_of(values, 4).tolist() == [0, 0, 1, 2, 3, 3, 3]
    assert section_of(torch.full((3,), 2.0, dtype=torch.float64), 4).tolist() == [0, 0, 0]
    strange = torch.tensor([-INF, 0.0, 1.0, INF, NAN], dtype=torch.float64)
    assert section_of(strange, 4).tolist() == [0, 0, 3, 3, 4]


def test_k_multisection_draws_the_same_number_from_each_section() -> None:
    cases = with_scores(torch.linspace(0, 1, 1000))
    rows = chosen("k_multisection", cases, 200, sections=10)
    assert per_section(cases, rows, 10) == [20] * 10
    assert sorted(rows) != list(range(200))


def test_a_short_section_is_taken_whole_and_the_others_make_up_for_it() -> None:
    """Sections of 90, 5, 0 and 3 cases: a heavy right tail."""
    values = [0.0, *[0.1] * 89, *[1.5] * 5, *[3.5] * 2, 4.0]
    cases = with_scores(values)
    assert per_section(cases, list(range(98)), 4) == [90, 5, 0, 3]
    for k, share in ((8, [3, 3, 0, 2]), (13, [5, 5, 0, 3]), (40, [32, 5, 0, 3]), (97, [89, 5, 0, 3])):
        found = per_section(cases, chosen("k_multisection", cases, k, sections=4), 4)
        if k == 8:  # eight among three sections: who gets the two left over is drawn
            assert sorted(found) == [0, 2, 3, 3]
        else:
            assert found == share


def test_k_multisection_draws_at_random_under_its_stream() -> None:
    """Each case of a section, and each section where there are fewer draws than sections, has the same chance."""
    cases = with_scores([*[0.0] * 96, 1.0, 2.0, 3.0, 4.0])
    counts = torch.zeros(100)
    for seed in range(400):
        rows = k_multisection(bench(), cases, 2, rng=Stream(seed), score="s", sections=4)
        counts[rows] += 1
    per = torch.stack([counts[:96].sum(), counts[96], counts[97], counts[98:].sum()])
    assert per.sum() == 800
    assert ((per - 200).abs() < 50).all(), "five standard deviations of 400 draws of two sections out of four"
    assert (counts[:96] > 0).sum() > 70


def test_spread_balances_the_labels() -> None:
    #       row  0    1    2    3    4    5    6    7
    cases = with_scores([9.0, 8.0, 7.0, 6.0, 1.0, 5.0, 2.0, 3.0], [0, 0, 0, 0, 1, 0, 2, 2])
    assert chosen("spread", cases, 3) == [0, 7, 4], "the best of each label"
    assert chosen("spread", cases, 4) == [0, 7, 4, 1], "one more: the best of the second-best"
    assert chosen("spread", cases, 7) == [0, 7, 4, 1, 6, 2, 3], "labels that ran out leave their share"
    assert chosen("spread", cases, 3, largest=False) == [4, 6, 5]


def test_turns_by_hand() -> None:
    groups = torch.tensor([2, 0, 2, 2, 0])
    assert turns(groups, torch.tensor([3, 4, 0, 1, 2])).tolist() == [1, 1, 2, 0, 0]
    assert turns(groups[:0], groups[:0]).tolist() == []
    assert ranked(torch.tensor([1.0, NAN, 3.0, 1.0]), largest=True).tolist() == [2, 0, 3, 1]


def random_cases(n: int = 11) -> Cases:
    rng = torch.Generator().manual_seed(1)
    x, seed = torch.rand(n, 5, generator=rng), torch.rand(n, 5, generator=rng)
    return Cases.of(x, torch.randint(3, (n,), generator=rng)).note(seed_x=seed)


def test_scores_are_computed_where_no_column_holds_them() -> None:
    cases = random_cases()
    found = scored(bench(), cases, "gini", None, "")
    assert found.dtype == torch.float64
    assert torch.equal(found, gini(bench(), cases).double()), "in chunks of four as at once"
    linf = scored(bench(), cases, "fol(norm=linf, box=true)", 0.1, "")
    assert torch.equal(linf, fol(bench(), cases, eps=0.1, norm="linf", box=True).double())
    assert torch.equal(scored(bench(), cases, "fol", 0.1, "linf"), fol(bench(), cases, eps=0.1, norm="linf").double())
    assert top(bench(), cases, 1, rng=RNG).tolist() == [int(gini(bench(), cases).argmax())]
    assert bi_end(bench(), cases, 1, rng=RNG).tolist() == [int(fol(bench(), cases).argmax())]
    assert set(spread(bench(), cases, 3, rng=RNG).tolist()) <= set(range(11))


def test_a_bare_name_means_the_column() -> None:
    cases = random_cases().note(gini=torch.arange(11.0), fol=-torch.arange(11.0))
    assert scored(bench(), cases, "gini", None, "").tolist() == list(range(11))
    assert scored(bench(), cases, "fol", 0.1, "").tolist() == fol(bench(), cases, eps=0.1).double().tolist()
    assert scored(bench(), cases, "fol(norm=l2)", None, "").tolist() == fol(bench(), cases).double().tolist()


def test_mistakes_are_told(tmp_path: Path) -> None:
    cases = random_cases()
    with pytest.raises(UsageError, match="did you mean 'gini'"):
        scored(bench(), cases, "ginni", None, "")
    with pytest.raises(UsageError, match=r"'seed_x' gave shape \(11, 5\)"):
        scored(bench(), cases, "seed_x", None, "")
    own = tmp_path / "own.py"
    own.write_text("def mean(bench, cases):\n    return cases.x.mean()\n")
    with pytest.raises(UsageError, match=r"one number for each of the 4 cases"):
        scored(bench(), cases, f"{own}:mean", None, "")
    with pytest.raises(UsageError, match="at least 1, got 0"):
        chosen("k_multisection", with_scores([1.0]), 1, sections=0)
