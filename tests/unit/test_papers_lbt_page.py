"""LBT's page: every word and number of it from the rows, one net of a subject, trials left out."""

from pathlib import Path
from typing import Any

import pytest

from papers.lbt_methods import METHODS
from papers.lbt_page import budgets, large, write_page
from papers.lbt_parts import agreeing, missing, retraining, sequential, sweeps
from papers.lbt_retrain import ARMS
from papers.lbt_subject import DATA, NETS, POOLS
from papers.lbt_tables import SEEDS, Place, against, pairs, places, stands, there, usual
from papers.lbt_verdict import answered, bar, compared, full
from papers.rows import Row, Rows

DIGITS = {str(b): 0.5 for b in (5, 10, 20, 30, 50)}


def row(method: str, seed: int, value: float, **more: Any) -> Row:
    """An order on one pool, all of whose rates are ``value``."""
    own = {"data": "mnist", "mut": "resnet20", "attack": "fgsm"}
    protocol = own | {k: more.pop(k) for k in tuple(more) if k in own}
    protocol |= {"experiment": "orders", "method": method, "seed": seed, "how": {}}
    protocol |= {"base": {"epochs": 10}, "scale": {"train": 0, "pool": 0, "epochs": 10}}
    numbers = {
        "fdr_mean": value,
        "apfd_norm": value,
        "apfd": value,
        "fdr": dict.fromkeys(DIGITS, value),
        "share": DIGITS,
    }
    numbers |= {"n": 100, "faults": 60, "fingerprint": "f", "machine": "CPU"}
    numbers |= {
        "diversity": {"volume": -3.0, "pairs": 4, "clusters": 5},
        "diversity_whole": {"pairs": 9, "clusters": 9},
    }
    return {"protocol": protocol, "numbers": numbers | more}


def seeds_of(method: str, values: tuple[float, ...], **more: Any) -> list[Row]:
    return [row(method, seed, value, **more) for seed, value in enumerate(values)]


def everywhere(lbt: tuple[float, ...], random: tuple[float, ...], control: tuple[float, ...]) -> list[Row]:
    """The same rows on both data sets."""
    return [
        r
        for data in DATA
        for method, values in (("lbt", lbt), ("random", random), ("control", control))
        for r in seeds_of(method, values, data=data)
    ]


LOW, MIDDLE, HIGH = (0.49, 0.51, 0.53), (0.59, 0.61, 0.63), (0.70, 0.71, 0.72)


# ---- which rows, which pairs ----


def test_a_subject_has_one_net_and_no_trial() -> None:
    rows = [row("lbt", 0, 0.5), row("lbt", 1, 0.6), row("lbt", 2, 0.7, fingerprint="another")]
    trial = row("lbt", 3, 0.9)
    trial["protocol"]["small"] = True
    later = row("lbt", 0, 0.8)
    assert usual([*rows, trial, later]) == [later, rows[1]], "the net with most rows, the last of a protocol"
    other = row("lbt", 2, 0.7, fingerprint="another", mut="vgg16")
    assert other in usual([*rows, other]), "another model has a net of its own"


def test_a_method_that_draws_nothing_stands_beside_every_seed() -> None:
    own = [*seeds_of("lbt", LOW), row("gini", 0, 0.4), *seeds_of("random", HIGH[:2])]
    assert pairs(own, "lbt", "gini", "fdr_mean") == {0: (0.49, 0.4), 1: (0.51, 0.4), 2: (0.53, 0.4)}
    assert pairs(own, "lbt", "random", "fdr_mean") == {0: (0.49, 0.7), 1: (0.51, 0.71)}
    assert pairs(own, "lbt", "dsa", "fdr_mean") == {}


def test_who_is_outside_the_seed_spread() -> None:
    assert stands([(0.6, 0.5), (0.61, 0.51), (0.62, 0.52)]) == "ahead", "0.61 ± 0.01 and 0.51 ± 0.01"
    assert stands([(0.52, 0.5), (0.53, 0.51), (0.54, 0.52)]) == "level", "0.53 ± 0.01 touches 0.51 ± 0.01"
    assert stands([(0.3, 0.5), (0.3, 0.6), (0.3, 0.7)]) == "behind"
    assert stands([(1.0, 1.0)] * 5) == "level"
    assert stands([(0.9, 0.1), (0.9, 0.1)]) == "–"


def test_means_over_pools_are_of_seeds_that_all_have() -> None:
    rows = [*seeds_of("lbt", LOW), *seeds_of("random", MIDDLE)]
    rows += [*seeds_of("lbt", HIGH[:2], attack="jsma"), *seeds_of("random", MIDDLE, attack="jsma")]
    told = against(rows, "lbt", "random", data="mnist")
    assert [pytest.approx(pair) for pair in told.means] == [(0.595, 0.59), (0.61, 0.61)]
    assert told.words == ("behind", "–")
    assert told.differences == pytest.approx((-0.1, -0.1, -0.1, 0.11, 0.1))
    assert told.a12 == pytest.approx(0.5), "0 on one pool, 1 on the other"
    assert against(rows, "lbt", "random", data="fashion-mnist").means == ()
    assert against(rows, "lbt", "random", pools=("jsma",)).words == ("–",)


# ---- the verdict ----


def test_the_bar_is_met_only_on_both_data_sets() -> None:
    met = everywhere(HIGH, LOW, MIDDLE)
    assert "Met.**" in bar(met, DATA)
    lost = [r for r in met if r["protocol"]["data"] == "mnist"]
    lost += [r for r in everywhere(MIDDLE, LOW, MIDDLE) if r["protocol"]["data"] == "fashion-mnist"]
    told = bar(lost, DATA)
    assert "Not met.**" in told
    assert "ahead against the control on MNIST" in told
    assert "level against the control on Fashion-MNIST" in told
    assert "Not decided yet" in bar(everywhere(HIGH[:2], LOW, MIDDLE), DATA)
    assert "Not decided yet" in bar(met, ["mnist"])


def test_the_page_says_who_is_ahead(tmp_path: Path) -> None:
    write_page(everywhere(HIGH, LOW, MIDDLE), tmp_path)
    page = " ".join((tmp_path / "lbt.md").read_text().split())
    assert (
        "Does LBT beat a random order on MNIST? Yes.** Average FDR in the mean over pools 0.710 ± 0.010 against" in page
    )
    assert "against 0.510 ± 0.020. Pool by pool ahead on 1, level on 0, behind on 0; above 0 in 3 of 3 pairs" in page
    assert "(p = 0.12, A12 1.00)" in page
    assert "MetaSel, which needs probabilities and labels, on MNIST? Not known.** There are no rows of both." in page
    assert "| LBT | labels | **0.710 ± 0.010** |" in page
    write_page(everywhere(LOW, MIDDLE, LOW), tmp_path)
    page = " ".join((tmp_path / "lbt.md").read_text().split())
    assert "Does LBT beat a random order on MNIST? No, it is behind.**" in page
    assert "without mutants, on Fashion-MNIST? Not outside the seed spread.**" in page


def test_the_papers_pools_are_told_apart_where_there_are_others() -> None:
    rows = everywhere(HIGH, LOW, MIDDLE)
    assert "paper's two pools" not in answered(rows, "random", "mnist")
    rows += [*seeds_of("lbt", LOW, attack="fgsm-drawn"), *seeds_of("random", HIGH, attack="fgsm-drawn")]
    told = answered(rows, "random", "mnist")
    assert (
        "0.610 ± 0.015 against 0.610 ± 0.015 (on the paper's two pools 0.710 ± 0.010 against 0.510 ± 0.020: ahead)"
        in told
    )
    assert "ahead on 1, level on 0, behind on 1" in told


def test_pools_of_faults_only_are_named() -> None:
    rows = everywhere(HIGH, LOW, MIDDLE)
    assert full(rows) == ""
    for r in rows:
        if r["protocol"]["data"] == "mnist":
            r["numbers"]["faults"] = 98
    assert "MNIST, resnet20, FGSM (98.0%)" in full(rows)
    assert "Fashion" not in full(rows)


def test_every_method_is_tested_against() -> None:
    rows = [*seeds_of("lbt", HIGH), *seeds_of("control", MIDDLE), row("gini", 0, 0.9)]
    told = compared(rows)
    assert "| stand-in's Gini (control) | labels | average FDR | 1 / 0 / 0 | +0.1000 | 3 of 3 | 0.12 | 1.00 |" in told
    assert "| Gini | probabilities | average FDR | 0 / 0 / 1 | -0.1900 | 0 of 3 | > 0.99 | 0.00 |" in told


# ---- other parts ----


def test_tables_show_what_rows_say() -> None:
    rows = [*seeds_of("lbt", HIGH), row("gini", 0, 0.9), *seeds_of("random", LOW)]
    told = large(rows, "fdr_mean", "## FDR\n")
    assert "| faults m/n |  | 0.600 |" in told
    assert "| Gini | probabilities | 0.900 |" in told, "no bold for who sees more"
    assert "| random | nothing | 0.510 ± 0.020 |" in told
    assert "| LBT | 0.710 | 0.710 | 0.710 | 0.710 | 0.710 | 0.710 | 0.500 | 0.710 | 0.710 |" in budgets(rows)


def test_agreement_and_parts() -> None:
    more: dict[str, Any] = {"agreement": 0.95, "agreement_pool": 0.4, "queries": 4000}
    more |= {"agree": {"fdr_mean": 0.9, "apfd_norm": 0.8}, "disagree": {"fdr_mean": 0.3, "apfd_norm": 0.2}}
    told = agreeing(seeds_of("lbt", (0.5,), **more))
    assert "| MNIST, resnet20, FGSM | LBT | 0.950 | 0.400 | 4000 | 0.900 | 0.800 | 0.300 | 0.200 |" in told
    assert agreeing([]) == ""


def test_what_the_sequential_test_came_to() -> None:
    more: dict[str, Any] = {
        "kappa": 0.03,
        "sensitive": 40,
        "undecided": 50,
        "stable": 10,
        "mutants_asked": 120.5,
        "saved": 0.6,
    }
    more |= {"rejected": {"gf": 2, "nai": 4}, "rates": {"gf": 0.05, "nai": 0.025}}
    rows = [row("lbt", 0, 0.5, **more), row("lbt", 1, 0.5, **(more | {"rates": {"gf": 0.05, "nai": 0.05}}))]
    assert "| 0.0300 ± 0.0000 | 40 | 50 | 10 | 120.5 | 0.60 | gf 2, nai 4 | gf 0.05, nai 0.025–0.05 |" in sequential(
        rows
    )


def retrained(arm: str, seed: int, static: float, fresh: float) -> Row:
    made = row(arm, seed, 0.0)
    made["protocol"] |= {"experiment": "retrain", "arm": arm, "retrain": {"epochs": 10}}
    made["numbers"] |= {"static": static, "fresh": fresh, "clean": 0.99}
    return made


def test_static_and_fresh_gains_stand_apart() -> None:
    rows = [retrained("before", 0, 0.1, 0.05), retrained("lbt", 0, 0.4, 0.15), retrained("lbt", 1, 0.5, 0.15)]
    told = retraining(rows)
    assert "| MNIST, resnet20, FGSM | before | 1 | 0.100 | 0.050 | 0.990 | +0.000 | +0.000 |" in told
    assert "| LBT | 2 | 0.450 ± 0.071 | 0.150 ± 0.000 | 0.990 ± 0.000 | +0.350 | +0.100 |" in told
    assert retraining([]) == ""


def test_sweeps_have_a_line_for_each_value() -> None:
    rows = []
    for value in (0.005, 0.05):
        made = row(
            "lbt", 0, value, agreement=0.9, agreement_pool=0.5, queries=10, rejected={"gf": 1}, rates={"gf": value}
        )
        made["protocol"] |= {"experiment": "sweep", "what": "rate", "value": value}
        rows.append(made)
    told = sweeps(rows)
    assert "| 0.005 | LBT | 1 | 0.005 | 0.005 | 0.900 | 0.500 | 10 | gf 1 | gf 0.005 |" in told
    assert "| 0.05 | LBT | 1 | 0.050 |" in told


def test_what_is_missing_is_told_with_its_command(tmp_path: Path) -> None:
    told = missing([])
    whole = sum(5 for _ in METHODS) + 1 + 5 * (len(ARMS) - 1)
    assert f"| MNIST, vgg16, JSMA | {whole} | all |" in told
    assert "Sweeps without a row: rate, tau, net" in told
    own = [row(name, seed, 0.5) for name in METHODS for seed in SEEDS if (name, seed) != ("lbt", 3)]
    own += [retrained(arm, seed, 0.1, 0.1) for arm in ARMS for seed in SEEDS]
    assert (
        "| MNIST, resnet20, FGSM | 1 | lbt: 3 | `orders retrain --data mnist --mut resnet20 --attacks fgsm` |"
        in missing(own)
    )
    assert len(places()) == len(DATA) * len(NETS) * len(POOLS)
    write_page([], tmp_path)
    assert "No row has been computed yet" in (tmp_path / "lbt.md").read_text()


def test_pools_come_in_the_order_of_the_page() -> None:
    rows = [row("lbt", 0, 0.5, data="digits"), row("lbt", 0, 0.5, attack="jsma"), row("lbt", 0, 0.5)]
    assert [place for place, _ in there(rows)] == [
        Place("mnist", "resnet20", "fgsm"),
        Place("mnist", "resnet20", "jsma"),
        Place("digits", "resnet20", "fgsm"),
    ]


FILE = Path(__file__).parents[2] / "docs" / "papers" / "lbt.jsonl"


def test_the_page_is_made_of_its_rows(tmp_path: Path) -> None:
    write_page(list(Rows(FILE)), tmp_path)
    page = (tmp_path / "lbt.md").read_text(encoding="utf-8")
    assert page == (FILE.parent / "lbt.md").read_text(encoding="utf-8"), "make papers"
    assert all(len(line) <= 120 for line in page.splitlines() if not line.startswith("|"))
