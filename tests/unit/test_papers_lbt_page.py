"""LBT's page: every word and number of it from the rows, one net of a subject, trials left out."""

from pathlib import Path
from typing import Any

import pytest

from papers.lbt_methods import METHODS
from papers.lbt_page import budgets, large, write_page
from papers.lbt_parts import agreeing, missing, retraining, sequential, sweeps
from papers.lbt_remarks import gaps, helped, reruns, shorter, taus, thresholds
from papers.lbt_retrain import ARMS
from papers.lbt_subject import DATA, NETS, POOLS
from papers.lbt_tables import SEEDS, Place, against, pairs, places, stands, there, usual
from papers.lbt_verdict import answered, bar, compared, full, ranked
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


NEAR = (0.30, 0.50, 0.70)  # spread much wider than what lies between it and JUST
JUST = (0.31, 0.52, 0.71)


def test_who_shares_a_stand_in_is_judged_by_pairs() -> None:
    two = list(zip(NEAR, JUST, strict=True))
    assert stands(two) == "level", "0.5 ± 0.2 and 0.513 ± 0.2"
    assert stands(two, paired=True) == "behind", "-0.0133 ± 0.0058"
    assert stands([(b, a) for a, b in two], paired=True) == "ahead"
    assert stands([(0.5, 0.4), (0.5, 0.6), (0.5, 0.51)], paired=True) == "level"
    assert stands(two[:2], paired=True) == "–"
    rows = everywhere(NEAR, JUST, JUST)
    assert against(rows, "lbt", "control", data="mnist").word == "behind"
    assert against(rows, "lbt", "control", data="mnist").words == ("behind",)
    assert against(rows, "lbt", "random", data="mnist").word == "level", "it has no stand-in"
    for r in rows:
        r["numbers"]["stand_in"] = {"agreement": 0.9 if r["protocol"]["method"] == "lbt" else 0.8}
    assert against(rows, "lbt", "control", data="mnist").word == "level", "stand-ins of their own"


def test_behind_the_control_stands_in_the_first_lines() -> None:
    rows = everywhere((0.295, 0.492, 0.695), (0.1, 0.1, 0.1), (0.30, 0.50, 0.70))
    told = bar(rows, DATA)
    assert "Not met.**" in told
    assert (
        "**slightly behind its control, the same stand-in without mutants, on MNIST** (-0.0060 ± 0.0017, below 0 with "
        "3 of 3 seeds)" in told
    )
    answer = answered(rows, "control", "fashion-mnist")
    assert "on Fashion-MNIST? No, it is slightly behind.** 1 pool, 3 seeds" in answer
    assert "difference -0.0060 ± 0.0017" in answer


def test_p_is_two_sided_and_never_nothing() -> None:
    assert ranked([-0.1, -0.2, -0.3, -0.4, -0.5]) == "= 0.062, LBT lower", "2 of 32"
    assert ranked([0.1, 0.2, 0.3, 0.4, -0.5]) == "= 0.62, LBT higher", "twenty of 32: ranks 10 and 5"
    assert ranked([0.1, 0.2, 0.3, -0.5, -0.6]).endswith("LBT lower"), "ranks 6 and 9"
    assert ranked([0.001 * n for n in range(1, 81)]) == "< 1e-15, LBT higher"
    assert ranked([0.0]) == "–"


def test_no_answer_without_room_or_seeds() -> None:
    rows = [*seeds_of("lbt", HIGH), *seeds_of("nmutant", LOW)]
    told = answered(rows, "nmutant", "mnist")
    assert "mutants of the model itself, which see its weights, on MNIST? Yes.** 1 pool, 3 seeds" in told
    assert "? Not known.** 1 pool, 2 seeds" in answered(
        [r for r in rows if r["protocol"]["seed"] < 2], "nmutant", "mnist"
    )
    for r in rows:
        r["numbers"]["faults"] = 91
    assert "? Not known.** 1 pool (1 of them with more than 90% faults), 3 seeds" in answered(rows, "nmutant", "mnist")
    rows += [r for name in ("lbt", "nmutant") for r in seeds_of(name, HIGH if name == "lbt" else LOW, attack="jsma")]
    assert "? Yes.** 2 pools (1 of them with more than 90% faults), 3 seeds" in answered(rows, "nmutant", "mnist")


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
    assert "ahead of its control, the same stand-in without mutants, on MNIST (+0.1000 ± 0.0100, below 0 with 0" in told
    assert "level with its control, the same stand-in without mutants, on Fashion-MNIST (+0.0000" in told
    assert "Not decided yet" in bar(everywhere(HIGH[:2], LOW, MIDDLE), DATA)
    assert "Not decided yet" in bar(met, ["mnist"])


def test_the_page_says_who_is_ahead(tmp_path: Path) -> None:
    write_page(everywhere(HIGH, LOW, MIDDLE), tmp_path)
    page = " ".join((tmp_path / "lbt.md").read_text().split())
    assert (
        "Does LBT beat a random order on MNIST? Yes.** 1 pool, 3 seeds that all of them have: average FDR in the mean "
        "over pools 0.710 ± 0.010 against" in page
    )
    assert "against 0.510 ± 0.020. Pool by pool ahead on 1, level on 0, behind on 0; above 0 in 3 of 3 pairs" in page
    assert "(p = 0.25, LBT higher; A12 1.00)" in page
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
    assert (
        "| stand-in's Gini (control) | labels | average FDR | 1 / 0 / 0 | +0.1000 | 3 of 3 | 0.25, LBT higher | 1.00 |"
        in told
    )
    assert "| Gini | probabilities | average FDR | 0 / 0 / 1 | -0.1900 | 0 of 3 | 0.25, LBT lower | 0.00 |" in told


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


def test_gains_are_of_numbers_before_they_are_rounded() -> None:
    told = retraining([retrained("before", 0, 0.1125, 0.0504), retrained("none", 0, 0.1125, 0.0508)])
    assert "| before | 1 | 0.113 | 0.050 | 0.990 | +0.000 | +0.000 |" in told
    assert "| no extra cases | 1 | 0.113 | 0.051 | 0.990 | +0.000 | +0.000 |" in told
    assert "-0.000" not in retraining([retrained("before", 0, 0.1, 0.1), retrained("none", 0, 0.0999, 0.1)])


def test_clean_accuracy_of_what_was_learned_is_marked() -> None:
    rows = [retrained("before", 0, 0.1, 0.1), retrained("lbt", 0, 0.4, 0.2)]
    assert "contaminated" not in retraining(rows), "no row says that it has extra cases"
    rows[1]["numbers"]["extra"] = 1000
    told = retraining(rows)
    assert "*clean* is contaminated in the rows below" in told
    assert "| fresh | clean (leaked with extra cases) | static gain |" in told
    for r in rows:
        r["numbers"]["clean_held"] = r["numbers"].pop("clean") - 0.5
    told = retraining(rows)
    assert "contaminated" not in told
    assert "leaked" not in told
    assert "| fresh | clean, held images | static gain |" in told
    assert "| before | 1 | 0.100 | 0.100 | 0.490 |" in told


def test_retraining_is_compared_with_random_cases() -> None:
    rows = [retrained("lbt", 0, 0.5, 0.3), retrained("lbt", 1, 0.0, 0.0), retrained("random", 0, 0.51, 0.4)]
    told = " ".join(helped(rows).split())
    assert told == (
        "- **Under FGSM, LBT's first cases helped clearly less than the same number drawn at random**: static 0.500 "
        "against 0.510, lower on 1 of 1 models; fresh 0.300 against 0.400, lower on 1 of 1 models."
    ), "seed 1 has no random row"
    rows[0]["numbers"]["fresh"] = 0.41
    assert "helped about as much as the same" in helped(rows)
    rows[0]["numbers"]["fresh"] = 0.43
    assert "helped more than the same" in " ".join(helped(rows).split())
    assert helped(rows[:2]) == ""
    assert shorter(rows) == "", "10 epochs are specified"
    rows[0]["protocol"]["retrain"] = {"epochs": 5}
    assert shorter(rows) == "- Retraining ran 5 epochs; the specification says 10.\n"


def stood_in(seed: int, stopped: str, agreement: float, sizes: tuple[int, ...], **more: Any) -> Row:
    rounds = [{"round": i, "learned_from": n, "agreement": agreement} for i, n in enumerate(sizes, 1)]
    return row("lbt", seed, 0.5, stand_in={"agreement": agreement, "stopped": stopped, "rounds": rounds}, **more)


def test_what_stand_ins_came_to() -> None:
    rows = [stood_in(0, "tau", 0.96, (2000, 2100, 2205)), stood_in(1, "tau", 0.951, (2000, 2100))]
    rows += [stood_in(0, "tau", 0.96, (2000, 2100, 2205), attack="jsma")]
    told = " ".join(thresholds(rows).split())
    assert "tau 0.95 was reached by 2 of 2 stand-ins; they end at an agreement of 0.951 to 0.960. All 3" in told
    assert "added exactly 5% of what was there" in told
    others = [stood_in(0, "rounds", 0.8, (2000, 2400), data="fashion-mnist")]
    others += [stood_in(1, "growth", 0.87, (2000, 2100), data="fashion-mnist")]
    assert " ".join(thresholds(others).split()) == (
        "- **Fashion-MNIST**: tau 0.90 was reached by 0 of 2 stand-ins; they end at an agreement of 0.800 to 0.870 (1 "
        "by growth, 1 by rounds). Of 2 augmentations 1 added no more than the least, 5%."
    )
    assert thresholds([row("lbt", 0, 0.5)]) == ""


def swept(what: str, value: Any, seed: int, fdr: float, stopped: str = "rounds") -> Row:
    made = row("lbt", seed, fdr, stand_in={"stopped": stopped})
    made["protocol"] |= {"experiment": "sweep", "what": what, "value": value}
    return made


def test_a_setting_that_was_run_again_is_told() -> None:
    rows = [row("lbt", 0, 0.9), row("lbt", 1, 0.8), swept("rate", 0.05, 0, 0.9), swept("rate", 0.05, 1, 0.7)]
    rows += [swept("tau", 0.95, 0, 0.8), swept("tau", 0.95, 1, 0.75), swept("tau", 0.8, 0, 0.1)]
    assert reruns(rows) == (
        "The same setting run 3 times on MNIST, resnet20, FGSM has with seed 1 an average FDR of 0.800, 0.700 and "
        "0.750, and of 0.850, 0.800 and 0.775 in the mean over 2 seeds."
    )
    assert reruns(rows[:2]) == ""
    many = [swept("rate", value, seed, fdr) for value, fdr in ((0.01, 0.5), (0.05, 0.9)) for seed in range(3)]
    assert reruns(many) == "The best and the worst value of a sweep lie apart by 0.400 (rate): outside the seed spread."


def test_thresholds_that_no_stand_in_reached_are_told() -> None:
    rows = [swept("tau", 0.8, seed, 0.5, "tau") for seed in (0, 1)]
    rows += [swept("tau", value, 0, 0.5) for value in (0.95, 0.99)]
    assert taus(rows) == (
        "Of the thresholds tau, 0.8 was reached by 2 of 2 stand-ins. No stand-in reached 0.95, 0.99: rows of these are "
        "one setting run again."
    )
    assert taus([]) == ""


def test_gaps_are_told_at_the_top() -> None:
    own = [
        row(name, seed, 0.5, data=p.data, mut=p.mut, attack=p.attack)
        for p in places()
        for name in METHODS
        for seed in SEEDS
        if not name.startswith("cam") and (name, seed) != ("nmutant", 4)
    ]
    told = " ".join(gaps(own).split())
    assert "no row of CAM of NC 0.5, CAM of NC 0.75, CAM of KMNC, CAM of NBC, CAM of SNAC, CAM of TKNC; " in told
    assert "mutants of the model itself on 16 of 16 pools, with 4 seeds; no row of retraining." in told
    own += [retrained("lbt", 0, 0.1, 0.1), retrained("lbt", 1, 0.1, 0.1), retrained("random", 0, 0.1, 0.1)]
    assert "retraining on 1 of 16 pools, with 1–2 of 5 seeds, none by stand-in's Gini (control), Gini." in " ".join(
        gaps(own).split()
    )


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
