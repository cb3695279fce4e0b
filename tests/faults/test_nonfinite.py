"""Fault 3: models that answer NaN or infinity: always, for some inputs, or only in half precision."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from assay.core import store
from assay.core.shards import decode
from assay.engines.lanes import NONFINITE
from commands import Nursery
from unruly import DATA, MODEL, unruly

pytestmark = pytest.mark.slow

SOME, HALF = {"UNRULY": "nan on some"}, {"UNRULY": "half"}
FUZZ = ("fuzz", MODEL, "--data", DATA, "--recipe", "noise", "--config", "small.toml", "--quiet", "--json")
EVAL = (
    "eval",
    MODEL,
    "--data",
    DATA,
    "--suite",
    "pgd(steps=3), square(queries=20)",
    "--eps",
    "0.05",
    "--json",
    "--quiet",
)


@pytest.fixture(autouse=True)
def files(_own_folder: None, tmp_path: Path) -> None:
    unruly(tmp_path)


def strict(text: str) -> Any:
    """JSON as the standard has it, without NaN and infinity."""

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} in JSON")

    return json.loads(text, parse_constant=refuse)


def no_nan_in(folder: Path) -> None:
    """Neither text files nor models below a folder hold a number that is none."""
    looked = 0
    for path in folder.rglob("*"):
        if path.suffix in (".json", ".jsonl"):
            for line in [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines():
                strict(line)
        elif path.suffix in (".csv", ".toml"):
            words = path.read_text().lower().replace("=", ",").split(",")
            assert not {word.strip() for word in words} & {"nan", "inf", "-inf"}, path
        elif path.parent.name == "models":
            assert all(bool(t.isfinite().all()) for t in load_file(path).values() if t.is_floating_point()), path
        else:
            continue
        looked += 1
    assert looked


VERBS: dict[str, tuple[str, ...]] = {
    "fuzz": FUZZ,
    "eval": EVAL,
    "prioritise": ("prioritise", MODEL, "--pool", DATA, "--by", "gini"),
    "coverage": ("coverage", MODEL, "--data", DATA, "--by", "nc"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_model_that_answers_no_number_is_refused_before_any_work(verb: str, home: Nursery) -> None:
    ended = home.run(*VERBS[verb], env={"UNRULY": "nan"})
    ended.ended(4, "NaN or infinity on 64 of 64 inputs", "broken or the inputs do not fit")
    assert not Path("runs").exists()


@pytest.mark.parametrize("env", [SOME, HALF], ids=["some inputs", "half precision"])
def test_answers_that_are_no_number_are_failures_of_their_own_kind(env: dict[str, str], home: Nursery) -> None:
    ended = home.run(*FUZZ, "--run", "some", "--set", "schedule.failures=3", env=env).ended(0)
    told = strict(ended.out)
    assert told["nonfinite"] > 0
    assert told["nonfinite"] + told["wrong"] == told["failures"], "told apart"
    run = store.read(Path("runs/some"))
    kinds = torch.cat(
        [decode(run.file(n))["kind"] for line in run.commits("fuzz") for n in line.files if n.startswith("cases/")]
    )
    assert int((kinds == NONFINITE).sum()) == told["nonfinite"]
    status = strict(home.run("status", "some", "--json").ended(0).out)
    assert status["nonfinite"] == told["nonfinite"]
    home.run("report", "some").ended(0)
    again = home.run(*FUZZ, "--run", "some", "--set", "schedule.failures=3", env=env).ended(0)
    assert strict(again.out)["nonfinite"] == told["nonfinite"], "it goes on, and there is nothing left to do"
    no_nan_in(Path("runs"))


def test_scores_and_means_leave_out_what_is_no_number(home: Nursery) -> None:
    """Scores are noted with every case; of an answer that is no number they are none either."""
    scored = (*FUZZ, "--set", "score=entropy, margin", "--set", "schedule.failures=3", "--run", "some")
    told = strict(home.run(*scored, env=SOME).ended(0).out)
    assert told["nonfinite"] > 0
    assert told["wrong"] > 0
    assert all(value is not None and math.isfinite(value) for value in told["quality"]["scores"].values())
    home.run("select", "some", "--by", "top(score=entropy)", "-k", "10", "--json", env=SOME).ended(0)
    home.run("report", "some").ended(0)
    home.run("export", "some", "--to", "images", "--out", "pictures").ended(0)
    no_nan_in(Path("runs"))
    no_nan_in(Path("pictures"))


def test_evaluation_and_order_count_them_as_wrong(home: Nursery) -> None:
    sound = strict(home.run(*EVAL).ended(0).out)
    told = strict(home.run(*EVAL, "--save", "judged", env=SOME).ended(0).out)
    assert told["worst"]["accuracy"] < sound["worst"]["accuracy"]
    strict(home.run("prioritise", MODEL, "--pool", DATA, "--by", "gini", "--json", "--quiet", env=SOME).ended(0).out)
    no_nan_in(Path("runs"))


def test_a_training_that_diverges_is_told_and_leaves_no_model(home: Nursery) -> None:
    wild = ("train", "lenet5", "--data", "digits", "--out", "wild.safetensors", "--lr", "1e20", "--quiet")
    home.run(*wild, "--epochs", "2").ended(4, "the loss is not finite in epoch 1", "lower --lr (now 1e+20)")
    # One step only: its loss was fine, what it left is not.
    home.run(*wild, "--epochs", "1", "--batch", "2000").ended(4, "the net is broken after epoch 1", "lower --lr")
    assert not list(Path.cwd().glob("wild*"))
