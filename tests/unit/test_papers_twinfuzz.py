"""TwinFuzz's experiments: arms that differ in their cases alone, numbers that say what they say, the page from rows."""

import json
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import torch

from assay.core.cases import UNLABELLED
from assay.stages.trainers.kept_back import kept_back
from papers import twinfuzz
from papers.rows import Row, Rows
from papers.tables import column, pick
from papers.twinfuzz_arms import ARMS, FILTERS, TRIED, Arm, Maker
from papers.twinfuzz_differences import standing, stands
from papers.twinfuzz_fuzzing import parents, tried
from papers.twinfuzz_measure import STATIC, WHITE, Measure, described, summaries
from papers.twinfuzz_page import STATIC_COLUMNS, WHITE_COLUMNS, missing, write_page
from papers.twinfuzz_subject import Twins, plan_of
from papers.twinfuzz_tables import ORDER, ranked, subjects, usual
from papers.twinfuzz_texts import FINDING

COUNT = 20


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Twins:
    """Two small nets of digits."""
    plan, work = plan_of("digits", "lenet4", 1, 3), tmp_path_factory.mktemp("work")
    return Twins("digits", "lenet4", 0.2, 0, device="cpu", work=work, limit=300, plan=plan)


@pytest.fixture(scope="module")
def maker(twins: Twins) -> Maker:
    return Maker(twins, COUNT, 2 * COUNT, 0.3, 0.6)


@pytest.mark.parametrize("name", ["noise", "BIM cases", "mined seeds", "RobOT", "TwinFuzz", "DLFuzz"])
def test_cases_grow_from_training_images_that_may_be_learned_from(twins: Twins, maker: Maker, name: str) -> None:
    cases, told = maker.cases(ARMS[name])
    assert cases is not None
    assert len(cases) == told["cases"] <= COUNT
    clean = twins.part("train")
    assert torch.equal(clean.x[cases.origin], cases.info["seed_x"]), "the clean parent, not the attacked one"
    assert torch.equal(clean.y[cases.origin], cases.y), "with its own class"
    assert not kept_back(cases.origin, twins.seed).any()
    assert told["picked"]["linf"] <= 0.2 + 1e-6, "in the ball"
    if name in ("RobOT", "TwinFuzz", "DLFuzz"):
        assert told["share_wrong"]["resistant"] == 1
    if name in ("BIM cases", "mined seeds"):
        assert told["share_wrong"]["vulnerable"] == 1
    if name == "mined seeds":
        assert told["share_wrong"]["resistant"] == 1, "agreement is what mining asks for"


def test_runs_are_shared_by_the_arms_that_pick_otherwise(maker: Maker) -> None:
    first, again = maker.cases(ARMS["TwinFuzz"]), maker.cases(ARMS["top LIB"])
    assert first[1]["found"] == again[1]["found"]
    assert again[0] is not None
    pool = maker._found(ARMS["TwinFuzz"]).load().info["lib"]
    assert float(again[0].info["lib"].min()) >= float(pool.sort(descending=True).values[len(again[0]) - 1])


def test_the_label_free_arm_sees_no_labels_and_is_judged_by_them(twins: Twins, maker: Maker) -> None:
    cases, told = maker.cases(ARMS["agreed oracle"])
    assert cases is not None
    assert told["seeding"]["unlabelled"] == told["seed_list"]
    assert (cases.y != UNLABELLED).all()
    said = twins.predicted(twins.vulnerable, cases.info["seed_x"])
    assert torch.equal(said, cases.y), "the plain net's answer to the clean parent is what is learned"
    every = maker._found(ARMS["agreed oracle"]).load()
    truth = twins.part("train").y[every.origin]
    assert told["precision"] == pytest.approx(float((every.info["pred"] != truth).double().mean()), abs=1e-5)
    assert told["labels_right"] == pytest.approx(float((every.y == truth).double().mean()), abs=1e-5)


def test_no_seed_is_an_arm_without_cases(maker: Maker) -> None:
    none = Arm("fuzz", "twinfuzz", {"seeds.quality.least": 1.5, "valid.quality.least": 1.5}, "bi_end", twins=True)
    cases, told = maker.cases(none)
    assert cases is None
    assert told["cases"] == told["found"] == 0
    assert "quality left 0" in told["why"]


def test_the_start_the_heap_and_the_pool_that_chooses_are_the_same_for_all(twins: Twins) -> None:
    learn, check = twins.heap.learn, twins.heap.check
    assert len(learn) == round(0.2 * len(twins.part("train")))
    assert not set(learn.origin.tolist()) & set(check.origin.tolist())
    assert (twins.predicted(twins.vulnerable, learn.x) != learn.y).all()
    before = {k: v.clone() for k, v in twins.module(twins.resistant).state_dict().items()}
    _, told = twins.retrained(None)
    assert told["epoch"] == 1
    assert told["val_pool"] is not None
    after = twins.module(twins.resistant).state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before), "the resistant net itself is not touched"


def test_columns_are_means_of_their_attacks_and_never_mixed() -> None:
    attacks = ("fgsm", "pgd", "bim", "mim", "deepfool", "cw", "square")
    numbers = {
        column: {name: base + i / 10 for i, name in enumerate(attacks)}
        for column, base in (("static", 0.1), ("white", 0.2), ("near", 0.3))
    }
    told = summaries(numbers | {"fooling": dict.fromkeys(attacks)})
    assert told["static_seen"] == pytest.approx(0.15)
    assert told["static_new"] == pytest.approx(0.55)
    assert told["static_new_bim"] == pytest.approx(0.5)
    assert told["white_seen"] == pytest.approx(0.25)
    assert told["near_new"] == pytest.approx(0.75)
    assert told["fooling_new"] is None, "where nothing fools there is nothing to be right on"


def fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attacks of few steps."""
    for name, few in (("SEVERITIES", (1,)), ("AUTO", ("apgd_ce(steps=5)",))):
        monkeypatch.setattr(f"papers.twinfuzz_measure.{name}", few)
    for attacks in (STATIC, WHITE):
        for name, text in (("square", "square(queries=20)"), ("cw", "cw(norm=l2, steps=20, searches=1)")):
            monkeypatch.setitem(attacks, name, text)


def test_the_plain_net_fails_all_that_fools_it(twins: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    fewer(monkeypatch)
    measure = Measure(twins, 12)
    told = measure(twins.module(twins.vulnerable))
    assert all(value in (0, None) for value in told["fooling"].values())
    assert told["near"]["pgd"] >= told["white"]["pgd"], "a smaller ball holds fewer examples"
    assert len(told["corruption_kinds"]) == 13
    assert measure.ball("cw", 0.5) == {"eps": 0.5}, "C&W has a ball of its own"


def test_described_measures_to_the_clean_parent(twins: Twins) -> None:
    clean = twins.part("test")[:2]
    moved = clean.with_x(clean.x + 0.1).note(seed_x=clean.x, fol=torch.tensor([1.0, 3.0]))
    told = described(moved)
    assert told["linf"] == pytest.approx(0.1, abs=1e-5)
    assert told["l2"] == pytest.approx(0.1 * clean.x[0].numel() ** 0.5, rel=1e-4)
    assert told["fol"] == 2
    assert told["ssim"] < 1
    assert described(clean[:0]) == {}


@pytest.mark.parametrize("name", [n for n, arm in (ARMS | TRIED).items() if arm.make == "fuzz"])
def test_every_arm_can_say_how_it_is_made(name: str) -> None:
    told = (ARMS | TRIED)[name].config(0.25)
    json.dumps(told)
    assert "eps=0.25" in str(told["recipe"]) or name == "DeepXplore", "in the same ball"
    if "fol" in str(told["recipe"].get("score")):
        assert "fol(box=false, eps=null, exact=false, norm=l2, safe=true)" in told["recipe"]["score"]


def test_standing_needs_three_seeds_and_two_standard_errors() -> None:
    assert standing([0.01, 0.01]) == "–"
    assert standing([0.03, 0.02, 0.04]) == "ahead"
    assert standing([-0.03, -0.02, -0.04]) == "behind"
    assert standing([0.03, -0.04, 0.02]) == "level"


def test_where_both_are_low_nobody_is_ahead() -> None:
    rows = [row(arm, s, base + 0.001 * s) for s in (0, 1, 2) for arm, base in (("TwinFuzz", 0.04), ("RobOT", 0.01))]
    assert stands(rows, "TwinFuzz", "RobOT", "auto_near") == "floor"
    more = [row("noise", s, 0.06 + 0.001 * s) for s in (0, 1, 2)]
    assert stands(rows + more, "TwinFuzz", "noise", "auto_near") == "behind"
    assert stands(rows[:4], "TwinFuzz", "RobOT", "auto_near") == "–"


def test_rank_correlation_goes_by_order_and_shares_places() -> None:
    assert ranked([1, 10, 100, 1000], [0.1, 0.2, 0.4, 0.3]) == pytest.approx(0.8)
    assert ranked([5, 5, 7], [1, 2, 3]) == pytest.approx(0.75**0.5)
    assert ranked([2, 2], [1, 3]) is None


def row(arm: str, seed: int, new: float, **more: Any) -> Row:
    protocol = {"experiment": "arms", "data": "mnist", "net": "lenet5", "eps": 0.3, "seed": seed, "arm": arm}
    keys = (*STATIC_COLUMNS, *WHITE_COLUMNS)
    return {"protocol": protocol | {"recipe": {"name": arm}}, "numbers": dict.fromkeys(keys, new) | more}


def test_the_page_says_who_is_ahead(tmp_path: Path) -> None:
    rows = [row(arm, s, base + 0.001 * s) for s in (0, 1, 2) for arm, base in (("RobOT", 0.5), ("fine-tuning", 0.7))]
    rows += [row("TwinFuzz", s, 0.6 + 0.002 * s, cases=40, found=90) for s in (0, 1, 2)]
    cut = row("TwinFuzz", 3, 0.0)
    rows.append(cut | {"protocol": cut["protocol"] | {"limit": 9}})
    write_page(rows, tmp_path)
    page = (tmp_path / "twinfuzz.md").read_text().replace("\n", " ")
    assert "above RobOT's outside the seed spread\" holds**: ahead in 6, level in 0, behind in 0 of 6" in page
    assert "above fine-tuning's outside the seed spread\" does not hold**: ahead in 0, level in 0, behind in 6" in page
    assert "| TwinFuzz | 3 | 40 | 0.602 ± 0.002 |" in page
    assert "| RobOT | ahead +0.101 ± 0.001 (3/3) |" in page
    assert f"| arms, mnist, lenet5, eps 0.3 | 9 of {5 * len(ORDER)} | plain, resistant, paper's seeds, noise" in page
    assert "; fine-tuning, TwinFuzz, RobOT: 3 and 4 |" in page
    assert "What stands" not in page, "what was read in all rows is not said of a few"
    write_page([], tmp_path)
    assert "nothing is said yet" in (tmp_path / "twinfuzz.md").read_text()


def test_tried_arms_stand_beside_the_others_on_the_same_seeds() -> None:
    name = "20 000 attacked"
    rows = [row(name, s, 0.5, picked={"parents": 9}) for s in (0, 1)]
    rows += [row("TwinFuzz", s, 0.6 + s, picked={"parents": 5}) for s in (0, 1, 2)]
    told = tried(rows)
    assert "mnist, lenet5, eps 0.3, seeds 0, 1:" in told
    assert "| TwinFuzz | 5 | 1.100 ± 0.707 |" in told, "seed 2 is left out"
    assert "| TwinFuzz and its variants | 2 | 5 | -1.00 / -0.89 |" in parents(rows)


def test_rows_of_other_settings_do_not_share_a_table() -> None:
    rows = [row("noise", seed, 0.5) for seed in (0, 1)] + [row("noise", 0, 0.6)]
    other = row("noise", 2, 0.9)
    other["protocol"]["cases"] = 7
    assert usual([*rows, other]) == [rows[2], rows[1]], "the last of a kind, and the commonest settings"


def test_a_full_page_misses_nothing() -> None:
    rows = [
        {"protocol": {"experiment": e, "data": s.data, "net": s.net, "eps": round(s.eps, 6), "seed": i, "arm": a}}
        for s in subjects()
        for e, names in (("arms", ORDER), ("filters", tuple(FILTERS)))
        for a in names
        for i in s.seeds
    ]
    assert "None." in missing(rows)
    assert "| 29 of 30 |" in missing(rows[:-1])


def test_a_stopped_experiment_computes_only_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fewer(monkeypatch)
    file, other = tmp_path / "rows.jsonl", tmp_path / "other.jsonl"
    command = ["arms", "--data", "digits", "--nets", "lenet4", "--seeds", "0", "--limit", "150", "--device", "cpu"]
    command += ["--epochs", "1", "--resistant-epochs", "1", "--cases", "10", "--slice", "0.2", "--most", "0.2"]
    command += ["--images", "6", "--work", str(tmp_path / "work")]
    assert twinfuzz.main([*command, "--rows", str(file), "--known", "--arms", "resistant", "noise"]) == 0
    first = file.read_text()
    arms = ["--arms", "resistant", "noise", "TwinFuzz"]
    assert twinfuzz.main([*command, "--rows", str(other), "--known", str(file), *arms]) == 0
    assert file.read_text() == first
    (added,) = [json.loads(line) for line in other.read_text().splitlines()]
    assert added["protocol"]["arm"] == "TwinFuzz"
    assert added["protocol"]["recipe"]["recipe"]["name"] == "twinfuzz"
    told = added["numbers"]
    assert all(0 <= told[key] <= 1 for key in ("clean", "static_new", "white_new", "near_new", "auto", "corruptions"))
    assert twinfuzz.joined([Rows(file), Rows(other), Rows(other)]) == [*Rows(file), *Rows(other)]


# ---- the page as it is ----

FILE = Path(__file__).parents[2] / "docs" / "papers" / "twinfuzz.jsonl"


@pytest.fixture(scope="module")
def lenets() -> dict[tuple[str, str], list[Row]]:
    """The rows of the page, by data set and net."""
    every = usual(list(Rows(FILE)))
    return {(s.data, s.net): s.rows(every, "arms") for s in subjects() if s.data != "cifar10" and s.seeds[-1] == 4}


def words(lenets: dict[tuple[str, str], list[Row]], first: str, second: str, key: str) -> list[str]:
    """MNIST with LeNet-4 and LeNet-5, Fashion-MNIST with both."""
    return [stands(found, first, second, key) for found in lenets.values()]


def test_what_the_page_says_by_hand_is_what_its_rows_say(lenets: dict[tuple[str, str], list[Row]]) -> None:
    ahead, level, behind = "ahead", "level", "behind"
    for other in ("RobOT", "fine-tuning"):
        assert words(lenets, "TwinFuzz", other, "fooling_new") == [ahead, ahead, ahead, level]
    assert words(lenets, "TwinFuzz", "RobOT", "near_new") == [ahead, ahead, behind, behind]
    assert words(lenets, "TwinFuzz", "RobOT", "auto_near") == [ahead, ahead, level, behind]
    for key in ("near_new", "auto_near"):
        assert words(lenets, "TwinFuzz", "fine-tuning", key) == [ahead] * 4
        assert words(lenets, "DLFuzz", "TwinFuzz", key) == [ahead] * 4
        assert behind not in words(lenets, "TwinFuzz", "resistant", key)
        assert ahead not in words(lenets, "TwinFuzz", "plain", key)
        assert ahead not in words(lenets, "TwinFuzz", "random pick", key)
        assert ahead not in words(lenets, "TwinFuzz", "no mining", key)
    assert words(lenets, "DLFuzz", "RobOT", "near_new") == [ahead, ahead, level, ahead]
    assert words(lenets, "DLFuzz", "RobOT", "auto_near") == [ahead] * 4
    assert words(lenets, "resistant", "plain", "near_new")[2:] == [behind] * 2
    assert words(lenets, "noise", "fine-tuning", "near_new").count(ahead) == 3
    for name in ("DeepXplore", "BIM cases"):
        assert words(lenets, name, "fine-tuning", "near_new") == [level] * 4
    for (data, _), found in lenets.items():
        means = {a: mean(column(pick(found, arm=a), "near_new")) for a in ORDER if a not in ("adversarial", "plain")}
        order = sorted(means, key=means.__getitem__)
        assert order[-1] == "DLFuzz"
        assert order[0 if data == "mnist" else -2] == "RobOT"


def test_the_page_is_made_of_its_rows(tmp_path: Path) -> None:
    write_page(list(Rows(FILE)), tmp_path)
    page = (tmp_path / "twinfuzz.md").read_text(encoding="utf-8")
    assert page == (FILE.parent / "twinfuzz.md").read_text(encoding="utf-8"), "make papers"
    assert FINDING in page
    assert all(len(line) <= 120 for line in page.splitlines() if not line.startswith("|"))
