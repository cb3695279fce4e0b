"""Hardening with LBT: a pool that holds attacks which failed, and a selector that begins with inputs of its own."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from rich.console import Console
from rich.table import Table

from assay.core import store
from assay.core.cases import UNLABELLED, Cases
from assay.core.ids import input_ids
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.core.shards import decode
from assay.engines import rounds
from assay.engines.found import Found, load_failures
from assay.engines.fuzz import fuzz
from assay.engines.harden import harden
from assay.engines.hardened import Hardened, Round
from assay.engines.shrink import shrink
from assay.outputs import harden_tables
from assay.outputs.notes import note_facts, note_title
from assay.outputs.report.build import report
from assay.outputs.screen import fuzz_line
from assay.outputs.status import readable, run_status
from assay.stages import stand_in
from assay.stages.oracles.every import every
from assay.stages.schedules import Next
from assay.stages.seeds.labelled import labelled
from assay.stages.trainers.kept_back import kept_back
from assay.subjects.bench import Bench, Splits, with_validation
from assay.subjects.data.load import load_data, load_splits
from assay.subjects.sources.load import load_target
from report_pages import page_text

EPS = 0.15
SELECT = "lbt(start=10, check=60, rounds=2, epochs=4, mutants=12)"
CHANGES: dict[str, Any] = {"train.epochs": 2, "train.batch": 32, "select": SELECT}


def hardened(model: Any, run: str = "h", **changed: Any) -> Hardened:
    given: dict[str, Any] = {
        "until": "fgsm>=1, clean>=1",
        "eps": EPS,
        "run": run,
        "rounds": 1,
        "per_round": 80,
        "suite": "fgsm",
        "changes": CHANGES,
        "val_cases": 60,
        "test_cases": 40,
        "device": "cpu",
        "control": False,
    }
    return harden("lbt", model, "digits", **(given | changed))


def shown(table: Table) -> str:
    console = Console(width=220)
    with console.capture() as capture:
        console.print(table)
    return " ".join(capture.get().split())


def digits() -> Splits:
    return with_validation(load_splits("digits"))


@pytest.fixture(scope="module")
def whole(digits_model: str, tmp_path_factory: pytest.TempPathFactory) -> Hardened:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_RUNS", str(tmp_path_factory.mktemp("lbt") / "runs"))
        return hardened(digits_model, rounds=2, deterministic=True)


@pytest.fixture
def pool(digits_model: str) -> Found:
    return fuzz("lbt", digits_model, "digits/train[:150]", run="pool", eps=EPS, device="cpu", cases=1000)


def test_every_says_yes_and_an_unlabelled_seed_gets_the_models_word(digits_model: str) -> None:
    bench, cases = Bench(load_target(digits_model, device="cpu")), load_data("digits/test[:30]").cases
    assert every(bench, cases).tolist() == [True] * 30
    y = cases.y.clone()
    y[3:6] = UNLABELLED
    y[7] = (y[7] + 1) % 10
    told = labelled(bench, replace(cases, y=y), rng=Stream(0))
    assert told.y[3:6].tolist() == bench.logits(cases[3:6]).argmax(1).tolist()
    assert told.y[7] == y[7], "a wrong answer does not change a label"
    assert torch.equal(told.x, cases.x)


def test_a_seed_has_one_case_and_a_second_cycle_stores_none() -> None:
    schedule = bind("schedule", "once", {})()
    zero = torch.zeros(3, dtype=torch.int64)
    columns = {"cycle": torch.tensor([0, 0, 1]), "step": torch.tensor([1, 0, 1]), "opening": zero.bool()}
    lanes = schedule.start(Cases(torch.zeros(3, 2), zero, zero, columns))
    after: Next = schedule.next(lanes, lanes, zero.bool(), torch.tensor([True, True, True]))
    assert after.ended.tolist() == [True, False, True]
    assert after.stored.tolist() == [True, True, False]


def test_a_pool_has_each_input_attacked_once_whether_it_fails_or_not(pool: Found, digits_model: str) -> None:
    cases, clean = pool.load(), load_data("digits/train[:150]").cases
    assert cases.origin.tolist() == list(range(150)), "not again, though there was room for more"
    target = load_target(digits_model, device="cpu")
    attack = bind("attack", "fgsm", {"early_stop": False, "eps": EPS})
    assert torch.equal(cases.x, attack(target, clean.x, clean.y, rng=Stream(0).rows(cases.origin)))
    wrong = target(cases.x).argmax(1) != cases.y
    assert 0 < pool.wrong == int(wrong.sum()) < pool.failures == 150
    assert pool.opinions["wrong_label"] >= pool.wrong


def test_the_numbers_of_a_round_are_those_of_its_pool(whole: Hardened) -> None:
    assert len(whole.rounds) == 3
    checked = 0
    for done in whole.rounds[1:]:
        found = load_failures(store.read(whole.run / f"round-{done.number:03d}"))
        rows = decode((whole.run / f"state/round-{done.number:03d}.safetensors").read_bytes())
        fails = found.info["pred"] != found.y
        assert done.found == len(found) == len(digits().part("train"))
        assert done.failing == int(fails.sum())
        assert 0 < done.failing < done.found
        assert (done.selected, done.selected_failing) == (80, int(fails[rows["selected"]].sum()))
        assert torch.equal(rows["check"], (kept_back(found.origin, 0) & fails).nonzero().flatten()), "failures only"
        assert not bool(kept_back(found.origin, 0)[rows["selected"]].any())
        checked += len(rows["check"])
        assert done.checked == checked
    assert whole.rounds[2].learned == 160


def test_the_second_round_attacks_the_model_of_the_first(whole: Hardened) -> None:
    models = [load_target(f"lenet5@{whole.run}/models/round-{n:03d}.safetensors", device="cpu") for n in (0, 1)]
    for number, target in enumerate(models, 1):
        found = load_failures(store.read(whole.run / f"round-{number:03d}"))
        assert torch.equal(target(found.x).argmax(1), found.info["pred"])


def test_the_stand_in_is_taken_from_the_model_of_the_round_and_sees_training_inputs_alone(
    digits_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[str, set[str]]] = []
    own = stand_in.begin

    def noted(bench: Bench, *rest: Any) -> Any:
        told = own(bench, *rest)
        begun.append((bench.target.fingerprint(), {name for some in told for name in input_ids(some)}))
        return told

    monkeypatch.setattr(stand_in, "begin", noted)
    told = hardened(digits_model, rounds=2)
    models = [load_target(f"lenet5@{told.run}/models/round-{n:03d}.safetensors", device="cpu") for n in (0, 1)]
    assert [name for name, _ in begun] == [model.fingerprint() for model in models]
    parts = {part: set(input_ids(digits().part(part).cases.x)) for part in ("train", "val", "test")}
    for _, inputs in begun:
        assert len(inputs) == 160
        assert inputs <= parts["train"]
        assert not inputs & (parts["val"] | parts["test"])


def test_the_round_tells_what_the_stand_in_cost(whole: Hardened) -> None:
    said = whole.rounds[1].notes["selection"]
    assert said["stand_in"]["checked_on"] == 60
    assert said["mutants"] == 12
    assert note_title(whole.rounds[1].notes) == "what the selector says"
    facts = note_facts(whole.rounds[1].notes)
    learned = said["stand_in"]["rounds"][-1]["learned_from"]
    assert facts["stand-in"].startswith(f"learned from {learned} answers, gives the class of the model to ")
    assert f"{said['sensitive']} sensitive" in facts["sequential test"]
    table = shown(harden_tables.notes_tables(whole)[0])
    assert table.startswith("what the selector says, round 1")
    assert note_title({"lr": 1.0}) == "what the trainer says"
    assert note_title({"lr": 1.0, "selection": {}}) == "what the selector and the trainer say"


def test_tables_status_and_report_tell_cases_from_failures(whole: Hardened) -> None:
    first = whole.rounds[1]
    table = shown(harden_tables.rounds_table(whole))
    assert "cases ┃ failing ┃ selected" in table
    assert "found" not in table
    assert f"│ {first.found} │ {first.failing} │ 80 ({first.selected_failing} failing) │" in table
    assert "whether they fail or not" in table
    line = f"{first.found} cases ({first.failing} failing), 80 selected ({first.selected_failing} failing)"
    assert line in readable(run_status(store.read(whole.run)))["rounds"]
    page = page_text(report(whole.run))
    assert f"| {first.found} | {first.failing} | 80 ({first.selected_failing} failing) |" in page
    assert "What the selector says of round 1" in page
    told = whole.to_json()["rounds"]
    assert (told[1]["failing"], told[1]["selected_failing"]) == (first.failing, first.selected_failing)
    assert "failing" not in told[0], "the original has found nothing"
    assert Round.of_json(first.to_json()).failing == first.failing


def test_a_pool_is_not_called_failures(pool: Found) -> None:
    status = readable(run_status(store.read(pool.run)))
    assert status["cases kept, failing or not"] == "150"
    assert status["of these the model is wrong on"] == str(pool.wrong)
    assert not {"failures", "broken", "distinct"} & status.keys()
    page = report(pool.run)
    assert "failing or not; the target is wrong on" in page_text(page)
    assert ">Failures<" not in page.read_text()
    assert "of failure" not in page_text(page)
    numbers = {"cases": 5, "seconds": 1.0, "failures": 4, "seeds": 3}
    assert "4 failures" in fuzz_line(numbers)[0]
    assert "4 kept" in fuzz_line(numbers | {"kept": "kept"})[0]


def test_only_what_fails_of_a_pool_is_shrunk(pool: Found) -> None:
    told = shrink("pool", k=20)
    wrong = pool.load().info["pred"] != pool.load().y
    assert len(told) == int(wrong[:20].sum()) < 20


def test_no_more_is_asked_of_a_round_than_there_are_seeds(digits_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[dict[str, Any]] = []

    def noted(*given: Any, **more: Any) -> Found:
        limits.append({name: more.get(name) for name in ("time", "cases")})
        return fuzz(*given, **more)

    monkeypatch.setattr(rounds, "fuzz", noted)
    train = len(digits().part("train"))
    quick = {"train.epochs": 1, "select": "random"}
    small: dict[str, Any] = {"changes": quick, "val_cases": 20, "test_cases": 10}
    hardened(digits_model, "a", **small)
    few = hardened(digits_model, "b", fuzz_cases=90, **small)
    hardened(digits_model, "c", fuzz_cases=10 * train, **small | {"changes": quick | {"seeds": "drawn(count=200)"}})
    assert limits == [{"time": 30.0, "cases": train}, {"time": None, "cases": 90}, {"time": None, "cases": 200}]
    assert few.rounds[1].found == 90
    assert load_failures(store.read(few.run.parent / "c" / "round-001")).origin.unique().numel() == 200


def test_a_hardening_that_was_stopped_ends_the_same(whole: Hardened, digits_model: str) -> None:
    hardened(digits_model, rounds=1, deterministic=True)
    again = hardened(digits_model, rounds=2, deterministic=True)
    for name in ("models/round-002.safetensors", "state/round-002.safetensors", "state/round-002.json"):
        assert (again.run / name).read_bytes() == (whole.run / name).read_bytes()
