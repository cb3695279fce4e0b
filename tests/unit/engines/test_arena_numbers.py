"""The numbers of an arena by hand: columns, what is kept of each input, who is told apart from whom."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from assay.core.errors import UsageError
from assay.core.stats import mcnemar, paired_shares
from assay.engines.arena_columns import CLEAN, STATIC, WHITE, groups, headings, packed, told_of, unpacked
from assay.engines.arena_row import USUAL, _until_spent, row_of
from assay.engines.arena_standing import Standing, compared
from assay.engines.cascade import Block, Effort
from assay.engines.evaluation import Evaluation, Share
from assay.engines.hardened import ALL_DONE

IMAGE = (1, 28, 28)


def told(rights: list[int], of: int = 1, unreliable: list[str] | None = None) -> dict[str, Any]:
    right = torch.tensor(rights)
    spoiled = {"unreliable": unreliable} if unreliable else {}
    return {"right": sum(rights), "n": len(rights), "of": of, "ci95": [0.0, 1.0], "rows": packed(right, of), **spoiled}


def first(k: int, n: int = 100) -> list[int]:
    """The first k of n inputs are right."""
    return [int(i < k) for i in range(n)]


def record(row: str, seed: int, rights: list[int], **more: Any) -> dict[str, Any]:
    made = {"seconds": 2.0 + seed, "passes": 100, "found": None} | more
    return {"row": row, "seed": seed, "made": made, "columns": {"pgd": told(rights)}}


PROTOCOL = {"columns": {"pgd": {"kind": WHITE, "attacks": []}}}


# Columns


def test_the_usual_columns_leave_out_the_ball_of_the_arena_and_what_is_for_images() -> None:
    found = headings("", 0.3, "linf", IMAGE)
    assert [h.name for h in found] == ["clean", "static", "pgd", "autoattack", "l2", "l1", "spatial", "corruptions"]
    sizes = {h.name: (h.norm, h.eps) for h in found}
    assert sizes["pgd"] == ("linf", 0.3)
    assert sizes["l2"] == ("l2", 2.1)  # 0.3 · 28 / 4
    assert sizes["l1"] == ("l1", 14.7)  # 0.3 · 784 / 16
    vectors = [h.name for h in headings("", 0.3, "l2", (16,))]
    assert vectors == ["clean", "static", "pgd", "autoattack", "linf", "l1"]


def test_columns_have_parameters_and_a_number_of_inputs() -> None:
    clean, l2, auto = headings("clean, l2(eps=1, steps=7), autoattack[:20]", "8/255", "linf", IMAGE)
    assert (clean.kind, l2.eps, auto.cases) == (CLEAN, 1.0, 20)
    assert "steps=7" in l2.to_json()["attacks"][0]
    assert "norm=l2" in l2.to_json()["attacks"][0]
    assert auto.to_json()["cases"] == 20
    assert f"eps={8 / 255}" in auto.to_json()["attacks"][0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pgd, pgd", "name pgd twice"),
        ("nosuch", "unknown attack or suite 'nosuch'"),
        ("pgd[3:]", "takes the first inputs"),
        ("pgd(stepz=3)", "no parameter 'stepz'"),
    ],
)
def test_columns_that_cannot_be_measured_are_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        [heading.to_json() for heading in headings(text, 0.1, "linf", IMAGE)]


def test_one_evaluation_measures_clean_static_and_pgd() -> None:
    assert headings("spatial, spatial(shift=0.1)", 0.1, "linf", IMAGE)[0].suite == "spatial(rotation=15, shift=0.05)"
    assert headings("spatial(shift=0.1)", 0.1, "linf", IMAGE)[0].suite == "spatial(rotation=15, shift=0.1)"
    found = groups(headings("clean, static, pgd, spatial, autoattack[:5]", 0.1, "linf", IMAGE))
    assert [sorted(h.name for h in group) for group in found] == [
        ["clean", "pgd", "static"],
        ["spatial"],
        ["autoattack"],
    ]
    alone = groups(headings("clean, pgd[:5]", 0.1, "linf", IMAGE))  # of other inputs
    assert [[h.name for h in group] for group in alone] == [["pgd"], ["clean"]]


def evaluation(suite: str, right: list[int], broken: dict[str, list[int]]) -> Evaluation:
    def bits(rows: list[int]) -> torch.Tensor:
        return torch.tensor(rows, dtype=torch.bool)

    block = Block(torch.zeros(len(right)), bits(right))
    for key, rows in broken.items():
        block.broken[key], block.effort[key] = bits(rows), Effort(0.0, 0, 0)
    share = Share(1, 2)
    return Evaluation(share, {}, share, {}, {}, blocks=(block,), warnings=[{"name": "masked_gradient", "message": ""}])


def test_static_and_white_box_numbers_come_from_their_own_examples() -> None:
    found = {h.kind: h for h in headings("clean, static, pgd", 0.1, "linf", IMAGE)}
    broken = {"attacks/pgd": [0, 1, 1, 0], "static/pgd": [0, 0, 1, 0]}
    result = evaluation("pgd", [1, 1, 1, 0], broken)
    assert [told_of(found[kind], result)["right"] for kind in (CLEAN, WHITE, STATIC)] == [3, 1, 2]
    assert unpacked(told_of(found[WHITE], result)) == [1.0, 0.0, 0.0, 0.0]
    assert unpacked(told_of(found[STATIC], result)) == [1.0, 1.0, 0.0, 0.0]
    assert told_of(found[WHITE], result)["unreliable"] == ["masked_gradient"]
    assert "unreliable" not in told_of(found[CLEAN], result)


def test_every_corruption_counts_and_attacks_of_a_suite_count_by_the_worst() -> None:
    corruptions, cascade = headings("corruptions, fast", 0.1, "linf", IMAGE)
    result = evaluation("x", [1, 1, 0], {"attacks/a": [0, 1, 0], "attacks/b": [0, 0, 0]})
    shown = told_of(corruptions, result)
    assert (shown["right"], shown["n"], shown["of"], shown["accuracy"]) == (3, 3, 2, 0.5)
    assert unpacked(shown) == [1.0, 0.5, 0.0]
    assert told_of(cascade, result)["right"] == 1


@pytest.mark.parametrize("n", [1, 4, 5, 63])
def test_what_is_packed_comes_back(n: int) -> None:
    rights = [int(i % 3 == 0) for i in range(n)]
    assert unpacked(told(rights)) == rights
    assert unpacked(told([65 * r for r in rights], of=65)) == rights


# Who is told apart


def test_a_pair_of_single_seeds_is_tested_by_mcnemar_and_made_up_for_all_pairs() -> None:
    rows = {"a": [told(first(80))], "b": [told(first(60))], "c": [told(first(59))]}
    found = compared(rows)
    assert found[frozenset("ab")] == pytest.approx(2 * mcnemar(20, 0))
    assert found[frozenset("ac")] == pytest.approx(3 * mcnemar(21, 0))
    assert found[frozenset("bc")] == 1.0


def test_seeds_are_pooled_input_by_input() -> None:
    rows = {"a": [told(first(80)), told(first(60))], "b": [told(first(50)), told(first(50))]}
    # each input's difference: 1 for inputs 50 to 59, a half for 60 to 79
    assert compared(rows)[frozenset("ab")] == pytest.approx(paired_shares([1.0] * 10 + [0.5] * 20))


def test_the_best_and_what_is_not_told_apart_from_it() -> None:
    found = Standing.of(
        PROTOCOL, [record(*row) for row in (("a", 0, first(80)), ("b", 0, first(78)), ("c", 0, first(50)))]
    )
    assert {row: cells["pgd"].best for row, cells in found.cells.items()} == {"a": True, "b": True, "c": False}
    assert list(found.cells) == ["a", "b", "c"]
    assert found.stands_out("b", "pgd")
    alike = Standing.of(PROTOCOL, [record("a", 0, first(80)), record("b", 0, first(79))])
    assert not alike.stands_out("a", "pgd"), "where none is told apart nobody stands out"


def test_a_seed_that_does_as_well_keeps_two_rows_together() -> None:
    """Input by input they differ beyond chance, but another seed might turn them round."""
    a, worse = (
        [record("a", 0, first(90)), record("a", 1, first(70))],
        [record("b", 0, first(60)), record("b", 1, first(60))],
    )
    near = [record("b", 0, first(50)), record("b", 1, first(70))]
    assert not Standing.of(PROTOCOL, a + worse).cells["b"]["pgd"].best
    cell = Standing.of(PROTOCOL, a + near).cells["b"]["pgd"]
    assert cell.p is not None
    assert cell.p < 0.001
    assert cell.best


def test_a_spoiled_number_is_compared_with_nothing() -> None:
    spoiled = record("a", 0, first(99))
    spoiled["columns"]["pgd"] = told(first(99), unreliable=["masked_gradient"])
    found = Standing.of(PROTOCOL, [spoiled, record("b", 0, first(60)), record("c", 0, first(20))])
    assert {row: cells["pgd"].best for row, cells in found.cells.items()} == {"a": False, "b": True, "c": False}


def others(row: str, seed: int, **rights: list[int]) -> dict[str, Any]:
    return record(row, seed, first(1)) | {"columns": {name: told(right) for name, right in rights.items()}}


def test_unseen_is_the_mean_of_other_norms_and_turned_images_input_by_input() -> None:
    columns = {name: {"kind": WHITE, "attacks": []} for name in ("pgd", "l2(eps=2)", "spatial", "corruptions")}
    a = others("a", 0, pgd=first(9), **{"l2(eps=2)": first(80)}, spatial=first(40), corruptions=first(3))
    b = others("b", 0, pgd=first(9), **{"l2(eps=2)": first(20)}, spatial=first(50), corruptions=first(99))
    found = Standing.of({"columns": columns}, [a, b])
    assert found.columns == ("pgd", "l2(eps=2)", "spatial", "unseen", "corruptions")
    assert (found.cells["a"]["unseen"].mean, found.cells["b"]["unseen"].mean) == (0.6, 0.35)
    # of each input: 1 - 1/2 for 20 to 39, then 1/2 - 1/2, then 1/2 - 0 for 50 to 79
    assert found.cells["b"]["unseen"].p == pytest.approx(paired_shares([0.5] * 20 + [0.5] * 30 + [0.0] * 50))
    assert not found.cells["b"]["unseen"].best
    a["columns"]["spatial"]["unreliable"] = ["zero_gradient"]
    assert Standing.of({"columns": columns}, [a, b]).cells["a"]["unseen"].unreliable == ("zero_gradient",)


def test_the_ball_that_rows_are_hardened_in_is_not_unseen() -> None:
    columns: dict[str, Any] = {name: {"kind": WHITE, "attacks": []} for name in ("linf", "l2(eps=1)", "l1")}
    row = others("a", 0, linf=first(90), **{"l2(eps=1)": first(5)}, l1=first(7))
    assert Standing.of({"columns": columns, "norm": "linf"}, [row]).cells["a"]["unseen"].mean == pytest.approx(0.06)
    assert Standing.of({"columns": columns, "norm": "l1"}, [row]).cells["a"]["unseen"].mean == pytest.approx(0.475)


def test_unseen_needs_two_columns_of_all_inputs() -> None:
    columns: dict[str, Any] = {name: {"kind": WHITE, "attacks": []} for name in ("l2", "l1")}
    row = others("a", 0, l2=first(5), l1=first(6))
    assert "unseen" in Standing.of({"columns": columns}, [row]).columns
    columns["l1"]["cases"] = 50
    assert "unseen" not in Standing.of({"columns": columns}, [row]).columns


def test_what_a_row_took_is_a_mean_over_its_seeds_and_unknown_where_one_is() -> None:
    counts = {"cases": 10, "failures": 4, "distinct": None}
    found = Standing.of(
        PROTOCOL, [record("a", 0, first(9)), record("a", 1, first(7)), record("f", 0, first(1), found=counts)]
    )
    assert found.spent["a"]["seconds"] == 2.5
    assert found.spent["a"]["found"] is None
    assert (found.spent["f"]["found"], found.spent["f"]["distinct"]) == (4, None)
    assert found.cells["a"]["pgd"].mean == pytest.approx(0.08)
    assert (found.cells["a"]["pgd"].low, found.cells["a"]["pgd"].high) == (0.07, 0.09)
    assert found.cells["a"]["pgd"].ci95 is None
    assert found.cells["f"]["pgd"].ci95 is not None


# Rows


def test_rows_are_recipes_first_then_trainers() -> None:
    assert [row_of(text).kind for text in ("none", "robot", "dare", "trades")] == [
        "none",
        "recipe",
        "recipe",
        "trainer",
    ]
    assert row_of("trades(beta=3, lr=0.1)").text == row_of("trades( lr=0.1,beta=3 )").text
    assert row_of("trades(beta=3)").slug != row_of("trades(beta=4)").slug
    assert row_of("robot(rounds=2, train.lr=0.5)").changes() == {"train.lr": 0.5}
    assert row_of("robot(rounds=2)").rounds == 2
    assert row_of("trades(beta=3)").recipe().train == "trades(beta=3)"
    assert (row_of("robot").finds, row_of("dare").finds, row_of("plain").finds) == (True, False, False)
    with pytest.raises(UsageError, match="did you mean 'trades'"):
        row_of("tradez")
    with pytest.raises(UsageError, match="takes no parameters"):
        row_of("none(x=1)")


@pytest.mark.parametrize(
    ("limit", "rounds"),
    [(10, 1), (14, 1), (16, 2), (24, 2), (26, 3), (1000, 5)],
)
def test_rounds_are_done_as_long_as_another_brings_them_nearer_to_the_limit(limit: float, rounds: int) -> None:
    done = []

    def work(rounds: int) -> Any:
        done.append(rounds)
        return SimpleNamespace(passes=10 * rounds, stopped=ALL_DONE)

    assert _until_spent(work, 5, limit, lambda told: told.passes).passes == 10 * rounds
    assert done == list(range(1, rounds + 1))


def test_rounds_end_where_there_is_nothing_to_learn_from() -> None:
    told: Any = SimpleNamespace(passes=1, stopped="no failing case was found to learn from")
    assert _until_spent(lambda **_: told, 5, 1000, lambda told: told.passes) is told


def test_every_usual_row_is_known() -> None:
    assert [row_of(text).text for text in USUAL] == list(USUAL)
