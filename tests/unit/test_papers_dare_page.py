"""DARE's page: every word and number of it from the rows, and cells that stand together of the same seeds."""

from pathlib import Path
from typing import Any

import pytest

from papers.dare_arms import ABLATIONS, MAIN
from papers.dare_attacks import ATTACKS
from papers.dare_chosen import chosen, drawn, gain, later
from papers.dare_measure import with_means
from papers.dare_page import ablations, clean, fresh, missing, static, write_page
from papers.dare_paper import ROBUST, WON_TOSEM, robust
from papers.dare_tables import ORDER, RACE, SEEDS, Model, models, over, usual, winners
from papers.dare_verdict import decided, race_table, races, scenarios, signed_ranks, standings
from papers.rows import Row, Rows
from papers.tables import column, pick


def row(arm: str, seed: int, value: float, net: str = "vgg16", **more: Any) -> Row:
    protocol = {"experiment": "arms", "data": "cifar10", "net": net, "seed": seed, "arm": arm, "how": {"epochs": 20}}
    sizes = {"static": 1000, "static_few": 200, "fresh": 9, "small": 9, "few": 9, "draws": 3, "fresh_draws": 1}
    protocol |= {"base": {"epochs": 60}, "sizes": sizes}
    protocol |= {"balls": {"linf": [0.031373, 0.003922], "l2": [0.5, 0.125]}}
    each = dict.fromkeys(ATTACKS, value)
    numbers = {"clean": 0.9, "static": each, "fresh": each, "small": each, "fingerprint": f"f{seed}", "device": "cpu"}
    return {"protocol": protocol, "numbers": with_means(numbers) | more}


def test_a_table_has_one_net_of_a_seed() -> None:
    rows = [row("dare", 0, 0.5), row("noise", 0, 0.4), row("dare", 1, 0.6)]
    rows += [row("dare", 0, 0.9, fingerprint="again"), row("dare", 1, 0.7)]
    kept = usual(rows)
    assert kept == [rows[0], rows[1], rows[4]], "the net with most rows, and the last row of an arm"
    odd = row("dare", 2, 0.1)
    odd["protocol"]["base"] = {"epochs": 2}
    assert odd not in usual([*rows, odd])


def full(values: dict[str, float], seeds: tuple[int, ...] = (0, 1, 2)) -> list[Row]:
    """Rows of all arms, those not named at 0.3, the same but for a little at each seed."""
    return [row(arm, seed, values.get(arm, 0.3) + 0.001 * seed * (arm == "dare")) for seed in seeds for arm in ORDER]


def test_the_page_says_whether_dare_beats_noise(tmp_path: Path) -> None:
    write_page(full({"dare": 0.6, "noise": 0.5, "ce": 0.7, "at-cw": 0.55}), tmp_path)
    page = (tmp_path / "dare.md").read_text().replace("\n  ", " ")
    assert "Does DARE beat random weight noise on static examples, as the paper measures? Yes.**" in page
    assert "Ahead with 1 model, level with 0, behind with 0; the difference is +0.101" in page
    assert "above 0 in 3 of 3 pairs (p = 0.12)" in page
    assert "Does DARE beat cross-entropy on D under fresh white-box attacks in the small ball? No.**" in page
    assert "on static examples: 5 of 5**" in page
    assert "random noise on the weights wins 0. With noise" in page
    assert "DARE wins 0 of 5" in page, "cross-entropy wins the longer race"
    assert "| cifar10, vgg16 | FGSM | 0.743 | 0.614 (C&W) | 3 | 0.300 | **0.601** | 0.300 |" in page
    assert "| cifar10, vgg16 | BIM | – | – | 3 |" in page
    assert "ahead +0.101 ± 0.001 (3/3)" in page
    assert "`--data cifar10 --nets vgg16 --seeds 0 1 2 --fresh 9 --small 9 --few 9`" in page
    assert f"| cifar10, vgg16 | {3 * len(ORDER)} of {5 * len(ORDER)} |" in page
    write_page(full({"dare": 0.6, "noise": 0.6}, seeds=(0, 1)), tmp_path)
    assert "Not known.**" in (tmp_path / "dare.md").read_text(), "two seeds say nothing"
    write_page([], tmp_path)
    assert "nothing is said" in (tmp_path / "dare.md").read_text()


def test_where_both_are_low_nobody_is_ahead() -> None:
    rows = full({"dare": 0.04, "noise": 0.01})
    assert standings(rows, "dare", "noise", "small_mean") == {"ahead": 0, "level": 0, "behind": 0, "floor": 1}


def test_equal_ones_share_a_scenario_and_one_without_rows_makes_none() -> None:
    rows = full(dict.fromkeys(("dare", "at-pgd"), 0.5), seeds=(0,))
    assert winners(rows, RACE, "bim") == ["dare", "at-pgd"]
    less = [r for r in rows if r["protocol"]["arm"] != "at-jsma"]
    assert winners(less, RACE, "bim") == []
    assert "no scenario has rows of all arms" in scenarios(less)


def without(rows: list[Row], arm: str, *seeds: int) -> list[Row]:
    return [r for r in rows if r["protocol"]["arm"] != arm or r["protocol"]["seed"] not in seeds]


def test_cells_of_a_row_are_of_the_seeds_that_the_racing_arms_share() -> None:
    rows = [row(arm, seed, 0.1 * seed + 0.01 * (arm == "at-pgd")) for seed in range(5) for arm in ORDER]
    rows = without(without(without(rows, "at-cw", 0), "at-bim", 1), "distilled", 4)
    mine, best, none = "0.300", "**0.310**", "–"
    cells = [mine, mine, mine, mine, best, mine, mine, mine, mine, none, mine, mine, mine]
    assert f"| cifar10, vgg16 | PGD | 0.833 | 0.810 (PGD) | 3 | {' | '.join(cells)} |" in static(rows)
    told = fresh(rows)
    assert "Small ball, cifar10, vgg16 (linf 0.00392, l2 0.125; three seeds):" in told
    assert "Full ball, cifar10, vgg16 (linf 0.0314, l2 0.5; three seeds):" in told
    assert "\n| DARE | 0.300 ± 0.100 |" in told
    assert "\n| distilled | – | – | – | – | – | – |" in told
    assert "| cifar10, vgg16 | 3 | 0.900 ± 0.000 (0.887) |" in clean(rows)
    assert "0.900 ± 0.000 | – | 0.900 ± 0.000 |\n" in clean(rows), "distilled lacks a seed"
    assert over(rows, [2, 3, 4], "distilled", "clean") == over(rows, [], "dare", "clean") == []


def test_the_arms_of_an_ablation_table_have_the_same_seeds() -> None:
    rows = [row(arm, seed, 0.1 * seed) for seed in range(3) for arm in ("original", "dare", "noise", "code")]
    told = ablations(without(rows, "code", 2))
    assert "cifar10, vgg16 (two seeds):" in told
    assert "| DARE | 0.900 | 0.050 |" in told
    assert "0.100" not in told


def test_a_scenario_says_how_many_seeds_decided_it() -> None:
    one = [row(arm, 0, 0.3 + 0.1 * (arm == "dare"), net="alexnet") for arm in ORDER]
    rows = [*full({"dare": 0.1, "at-jsma": 0.8}, seeds=(0, 1)), *one]
    assert decided(races(rows, RACE)) == {1: 5, 2: 5}
    assert races(rows, RACE)[Model("cifar10", "vgg16"), "cw"] == (["at-jsma"], 2)
    assert "examples: 5 of 10**" in scenarios(rows)
    assert "Of the 10, 5 were decided on one seed, 5 on two." in scenarios(rows)
    told = race_table(rows)
    assert "| as the paper counts, of 10 | of these on one seed, of 5 | of these on two seeds, of 5 | with" in told
    assert "\n| DARE | 5 | 5 | 0 | 5 |" in told
    assert "\n| trained on JSMA | 5 | 0 | 5 | 5 |" in told


def test_signed_ranks_are_one_sided_and_know_ties() -> None:
    assert signed_ranks([0.1, 0.2, 0.3, 0.4, 0.5]) == "= 0.031", "1 of 32"
    assert signed_ranks([0.1, 0.2, 0.3, 0.4, -0.5]) == "= 0.31", "ten of 32"
    assert signed_ranks([-0.1, -0.2, -0.3]) == "> 0.99"
    assert signed_ranks([0.0, 0.0]) == "–"
    # Equal but for their last bits: all ranks are 3, so W = 15, mean 7.5 and variance 5 * 3**2 / 4.
    assert signed_ranks([0.3 - 0.1, 0.2, 0.4 - 0.2, 0.2, 0.5 - 0.3]) == "= 0.013"


# ---- what DARE chose ----


def tuned(seed: int, rate: float, far: float, dare: float, noise: float | None) -> list[Row]:
    """A net whose best epoch is 28, mined up to epoch 27 + seed."""
    told: dict[str, Any] = {"lr": rate, "epoch": 2, "epochs_mined": [15, 27 + seed]}
    told |= {"val_accuracy": 0.812, "checked_accuracy_before": 0.81, "checked": 1000 + seed}
    rows = [row("original", seed, 0.0, trained={"epoch": 28}), row("dare", seed, dare, trained=told, moved={"l2": far})]
    return rows if noise is None else [*rows, row("noise", seed, noise, moved={"l2": far})]


def test_the_page_says_what_was_chosen_and_how_far_it_went() -> None:
    rows = [*tuned(0, 1e-6, 0.02, 0.2, 0.3), *tuned(1, 1e-4, 1.6, 0.5, 0.1), *tuned(2, 1e-5, 0.2, 0.4, 0.2)]
    rows += tuned(3, 1e-5, 0.3, 0.45, None)
    assert gain(rows[1]) == 2
    told = chosen(rows)
    assert "| cifar10, vgg16 | 0 | 1e-06 | 2 | +2 of 1000 | 0.02 | 0.200 | 0.300 |" in told
    assert "| cifar10, vgg16 | 3 | 1e-05 | 2 | +2 of 1003 | 0.3 | 0.450 | – |" in told
    words = " ".join(told.split())
    assert "Chosen with 4 nets: 1e-06 with 1, 1e-05 with 2, 0.0001 with 1." in words
    assert "between +2 and +2 more of the tenth (1000 to 1003 inputs) right than M." in words
    assert "by up to 80 times (cifar10, vgg16: 0.02, 1.6, 0.2, 0.3)" in words
    assert "over the 3 nets that have both: +1.00 for DARE, -1.00 for noise." in words
    assert chosen([]) == ""


def test_epochs_after_the_net_itself_are_counted() -> None:
    rows = [r for seed in range(4) for r in tuned(seed, 1e-6, 1.0, 0.2, 0.1)]
    assert "In 2 of 4 nets the latest mined epoch comes after M's own." in " ".join(later(rows).split())
    assert "nets the latest" not in later([])


def test_how_often_noise_was_drawn_is_that_of_the_rows() -> None:
    rows = full({})
    assert "3 draws stand behind clean and static numbers, and 1 behind fresh ones." in drawn(rows)
    for one in pick(rows, seed=1):
        one["protocol"]["sizes"]["fresh_draws"] = 2
    assert "3 draws stand behind clean and static numbers, and 1 or 2 behind fresh ones." in drawn(rows)


@pytest.mark.parametrize("net", ["lenet5", "alexnet"])
def test_nets_beside_the_papers_are_told_only_where_there_are_some(net: str) -> None:
    told = ablations([*full({}), *(row(arm, 0, 0.2, net=net) for arm in (*MAIN, *ABLATIONS))])
    assert ("LeNet-5 is no net of the paper" in told) == (net == "lenet5")
    assert f"cifar10, {net} (one seed):" in told


# ---- what was not run, and the paper's own ----


def test_a_full_page_misses_nothing() -> None:
    rows = [
        {"protocol": {"data": m.data, "net": m.net, "seed": seed, "arm": arm, "base": {"epochs": 60}, "sizes": {}}}
        for m in models()
        for seed in SEEDS
        for arm in ORDER
    ]
    for one in rows:
        one["protocol"]["how"] = {"epochs": 20}
    assert "None." in missing(rows)
    assert f"| {5 * len(ORDER) - 1} of {5 * len(ORDER)} | {ORDER[-1]}: 4 |" in missing(rows[:-1])


def test_the_papers_count_follows_from_its_numbers() -> None:
    scenario = [robust(data, net, attack) for (data, net), told in ROBUST.items() for attack in told]
    best = [max(told, key=told.__getitem__) for told in scenario]
    assert (best.count("dare"), len(best)) == WON_TOSEM


# ---- the page as it is ----

FILE = Path(__file__).parents[2] / "docs" / "papers" / "dare.jsonl"


def test_the_page_is_made_of_its_rows(tmp_path: Path) -> None:
    write_page(list(Rows(FILE)), tmp_path)
    page = (tmp_path / "dare.md").read_text(encoding="utf-8")
    assert page == (FILE.parent / "dare.md").read_text(encoding="utf-8"), "make papers"
    assert all(len(line) <= 120 for line in page.splitlines() if not line.startswith("|"))
    assert " past" not in page, "epochs after the net are mined too"


def test_what_the_page_says_by_hand_is_what_its_rows_say() -> None:
    every = usual([r for r in Rows(FILE) if "limit" not in r["protocol"]])
    for one in pick(every, arm="original"):
        assert one["numbers"]["static_mean"] < 0.02, "M stands at 0 but for rounding"
    assert all(value < 0.25 for value in column(pick(every, arm="original"), "fresh.pgd")), "undefended nets"
