"""LBT as a user types it: a pool, its order, selections from it, and hardening with it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.cli import run
from assay.core import store
from assay.core.errors import USAGE
from assay.engines.found import load_failures
from assay.subjects.asked import Asked
from assay.subjects.sources.load import load_target

BASE = ["--data", "digits/train[:300]", "--recipe", "lbt", "--eps", "0.15", "--device", "cpu"]
LBT = "lbt(start=10, check=60, rounds=2, epochs=4, mutants=12)"
METASEL = "metasel(start=10, check=60, rounds=2, labelled=600)"
BY = {"lbt": LBT, "metasel": METASEL, "control": LBT.replace(")", ", order=gini)")}


def out_of(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert run(arguments) == code
    return capsys.readouterr().out


@pytest.fixture
def pool(digits_model: str) -> Path:
    assert run(["fuzz", digits_model, *BASE, "--run", "pool", "--quiet"]) == 0
    return Path("runs/pool")


def shown(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("by", BY)
def test_select_takes_the_training_part_of_the_runs_data(
    pool: Path, by: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["select", "pool", "--by", BY[by], "-k", "40", "--device", "cpu"]
    capsys.readouterr()
    told = json.loads(out_of([*words, "--json"], capsys))
    assert (told["picked"], told["of"], told["new"]) == (40, 300, True)
    said = told["said"]
    assert said["stand_in"]["checked_on"] == 60
    again = out_of(words, capsys)
    assert "made before" in again
    assert f"{100 * said['stand_in']['agreement']:.1f} % of 60 inputs" in shown(again)
    assert json.loads(out_of([*words, "--json"], capsys))["said"] == said, "the run remembers what it cost"


def test_select_asks_for_training_inputs_where_it_knows_none(
    digits_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out_of(["fuzz", digits_model, *BASE, "--run", "pool", "--quiet"], capsys)
    out_of(["export", "pool", "--to", "npz", "--out", "some.npz", "--json"], capsys)
    out_of(["fuzz", digits_model, *BASE, "--data", "some.npz", "--run", "bare", "--quiet"], capsys)
    words = ["select", "bare", "--by", LBT, "-k", "10", "--device", "cpu", "--json"]
    assert run(words) == USAGE
    assert "--training" in capsys.readouterr().err
    assert json.loads(out_of([*words, "--training", "digits/train"], capsys))["picked"] == 10


def test_a_budget_of_queries_binds_a_selection_and_answers_stay_in_the_run(
    pool: Path, digits_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["select", "pool", "--by", LBT, "-k", "10", "--device", "cpu", "--model", digits_model, "--json"]
    capsys.readouterr()
    told = json.loads(out_of([*words, "--queries", "190"], capsys))
    target = load_target(digits_model, device="cpu", queries=190)
    assert isinstance(target, Asked)
    target.keep(pool / "answers.jsonl")
    assert 100 < target.queries.asked <= 190
    free = json.loads(out_of(words, capsys))
    assert (free["new"], free["selection"]) == (True, told["selection"] + 1), "with a budget it is another choice"
    assert free["said"]["stand_in"]["rounds"][-1]["learned_from"] > target.queries.asked - 60


def test_fuzz_status_and_report_speak_of_a_pool(pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    status = json.loads(out_of(["status", "pool", "--json"], capsys))
    cases = load_failures(store.read(pool))
    wrong = int((cases.info["pred"] != cases.y).sum())
    assert (status["failures"], status["wrong"], status["every"]) == (300, wrong, True)
    text = shown(out_of(["status", "pool"], capsys))
    assert "cases kept, failing or not │ 300" in text
    assert f"of these the model is wrong on │ {wrong}" in text
    page = Path(json.loads(out_of(["report", "pool", "--json"], capsys))["report"]).read_text()
    assert f"is wrong on {wrong} of them" in page


def test_the_pool_of_jsma_holds_what_it_did_not_fool(digits_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    jsma = ["--set", "mutate=attacked(attack=jsma, eps=6, norm=l0)"]
    told = json.loads(out_of(["fuzz", digits_model, *BASE, *jsma, "--run", "j", "--json"], capsys))
    assert told["failures"] == 300
    assert 0 < told["wrong"] < 300


def test_prioritise_takes_the_pool(pool: Path, digits_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    words = ["prioritise", digits_model, "--pool", "pool", "--by", f"{LBT}, {METASEL}, gini", "--device", "cpu"]
    told: dict[str, Any] = json.loads(out_of([*words, "--json"], capsys))
    assert (told["n"], len(told["methods"])) == (300, 3)
    assert all("why_not" not in method or not method["why_not"] for method in told["methods"])
    cases = load_failures(store.read(pool))
    assert told["faults"] == int((cases.info["pred"] != cases.y).sum())


def test_harden_learns_from_what_lbt_puts_first(digits_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["harden", digits_model, "--data", "digits", "--recipe", "lbt", "--eps", "0.15", "--until", "fgsm>=1"]
    words += ["--rounds", "1", "--per-round", "100", "--suite", "fgsm", "--val-cases", "60", "--test-cases", "40"]
    words += ["--set", f"select={LBT}", "--set", "train.epochs=2", "--device", "cpu", "--run", "h"]
    told = json.loads(out_of([*words, "--json"], capsys, 1))
    first = told["rounds"][1]
    assert 0 < first["selected_failing"] <= first["selected"] == 100 < first["failing"] < first["found"]
    assert first["notes"]["selection"]["stand_in"]["checked_on"] == 60
    text = shown(out_of(words, capsys, 1))
    assert f"100 ({first['selected_failing']} failing)" in text
    assert "what the selector says, round 1" in text
    picked = json.loads(out_of(["select", "h", "--by", LBT, "-k", "10", "--device", "cpu", "--json"], capsys))
    assert picked["of"] == first["found"]
    out_of(["export", "h/round-001", "--to", "npz", "--out", "r.npz", "--json"], capsys)
    assert len(np.load("r.npz")["x"]) == first["found"]


def test_the_recipe_is_listed_with_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    told = {kind: out_of(["list", kind], capsys) for kind in ("recipe", "selector", "oracle", "schedule")}
    assert "lbt" in told["recipe"]
    assert "metasel" in told["selector"]
    assert "every" in told["oracle"]
    assert "once" in told["schedule"]
