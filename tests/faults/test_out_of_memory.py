"""Fault 11: memory that runs out. Only what did not fit is done again, with half the rows; results are the same."""

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.subjects.sources import checkpoint
from commands import Nursery, Result, work_of
from full import CPU, GPU, UNCHECKED, Full, evaluation, room_for

MOST = 5  # inputs that fit: no power of two, so that what fits is found below it
FOUND = 4  # by halving 16
SUITES = {
    "linf": "fgsm, bim(steps=3), mim(steps=3), pgd(steps=3, restarts=2), apgd_ce(steps=5), apgd_dlr(steps=5), "
    "apgd_t(steps=5, targets=4), fab_t(steps=4, targets=4), square(queries=30), deepfool(steps=5, norm=linf), "
    "hop_skip_jump(queries=120, norm=linf)",
    "l2": "cw(steps=5, searches=2), deepfool(steps=5), boundary(queries=60), hop_skip_jump(queries=120), "
    "apgd_ce(steps=4)",
    "l0": "jsma(norm=l0)",
    "spatial": "spatial(angles=5, shifts=3)",
    "corrupt": "corrupt",
}
BALL = {"linf": ("--eps", "0.1"), "l2": ("--eps", "1", "--norm", "l2"), "l0": ("--eps", "12", "--norm", "l0")}
UNLIKE = ("seconds", "updated", "cases_per_second", "forward_seconds", "milliseconds", "out", "run", "path")


def bare(told: Any) -> Any:
    """What was told without clocks and places."""
    if isinstance(told, dict):
        return {key: bare(value) for key, value in told.items() if key not in UNLIKE}
    return [bare(value) for value in told] if isinstance(told, list) else told


def found_once(full: Full, most: int = MOST) -> None:
    """Memory ran out, never twice with as many rows, and never again once a number that fits was found."""
    failed = full.failed()
    assert failed, "memory never ran out: the test tests nothing"
    assert len(failed) == len(set(failed)), failed
    assert all(after <= before // 2 for before, after in itertools.pairwise(failed)), failed
    assert min(failed) > most, failed


def both(home: Nursery, full: Full, *arguments: str) -> tuple[Result, Result]:
    """The command with memory for few, and with as few from the start."""
    short = home.run(*arguments, "--json", before=full.trap).ended(0, "out of memory with")
    found_once(full, full.most)
    return short, home.run(*arguments, "--json", before=room_for(min(full.failed()) // 2)).ended(0)


@pytest.mark.slow
@pytest.mark.parametrize("ball", SUITES)
@pytest.mark.parametrize("most", [MOST, 1])
def test_every_attack_goes_on_with_what_fits(
    home: Nursery, digits_model: str, tmp_path: Path, ball: str, most: int
) -> None:
    full = Full(tmp_path / "log", most)
    arguments = evaluation(digits_model, "--each", *UNCHECKED, suite=SUITES[ball], eps=None)
    short, like = both(home, full, *arguments, *BALL.get(ball, ()))
    # What is counted twice is what was truly asked twice: the rows of the attack that failed on its way.
    told, wanted = bare(short.json), bare(like.json)
    for numbers in (*told["attacks"].values(), *wanted["attacks"].values()):
        numbers.pop("queries")
    assert told == wanted
    assert full.failed() == [16, 8] if most == MOST else [16, 8, 4, 2]


@pytest.mark.parametrize(("where", "error"), [("forward", CPU), ("backward", GPU)])
def test_gradients_of_inputs(home: Nursery, digits_model: str, tmp_path: Path, where: str, error: str) -> None:
    full = Full(tmp_path / "log", MOST, where, error)
    suite = "pgd(steps=3), apgd_t(steps=3, targets=3)"
    arguments = evaluation(digits_model, *UNCHECKED, suite=suite, eps="0.05")
    home.run(*arguments, "--save", "short", before=full.trap).ended(0, "out of memory with")
    found_once(full)
    home.run(*arguments, "--save", "like", before=room_for(min(full.failed()) // 2)).ended(0)
    runs = tmp_path / "runs"
    assert examples(work_of(runs / "short")) == examples(work_of(runs / "like"))
    for verb in ("status", "report"):
        home.run(verb, "short").ended(0)


def test_the_trust_checks(home: Nursery, digits_model: str, tmp_path: Path) -> None:
    full = Full(tmp_path / "log", MOST)
    arguments = evaluation(digits_model, eps="0.05")
    short, like = both(home, full, *arguments)
    assert short.json["warnings"] == like.json["warnings"]


def examples(work: dict[str, bytes]) -> dict[str, bytes]:
    """The tensors that a run holds."""
    return {name: content for name, content in work.items() if name.endswith(".safetensors")}


FUZZ = {
    "robot": ("--recipe", "robot", "--curvature", "double"),
    "noise": ("--recipe", "noise"),
    "deephunter": ("--recipe", "deephunter", "--training", "digits/train[:40]"),
    "dlfuzz": ("--recipe", "dlfuzz"),
    "lbt": ("--recipe", "lbt", "--eps", "0.1"),
}


@pytest.mark.slow
@pytest.mark.parametrize("recipe", FUZZ)
@pytest.mark.parametrize("where", ["forward", "backward", "double"])
def test_fuzzing(home: Nursery, digits_model: str, tmp_path: Path, recipe: str, where: str) -> None:
    if (where == "double" and recipe != "robot") or (where == "backward" and recipe in ("noise", "deephunter")):
        pytest.skip("takes no such gradients")
    full = Full(tmp_path / "log", MOST, where)
    arguments: tuple[str, ...] = ("fuzz", digits_model, "--data", "digits/train[:16]", *FUZZ[recipe], "--deterministic")
    arguments += ("--cases", "100", "--run", "short")
    home.run(*arguments, before=full.trap).ended(0, "out of memory with")
    found_once(full)
    short = work_of(tmp_path / "runs" / "short")
    shutil.rmtree(tmp_path / "runs" / "short")
    home.run(*arguments, before=room_for(min(full.failed()) // 2)).ended(0)
    assert examples(short) == examples(work_of(tmp_path / "runs" / "short"))
    home.run("status", "short").ended(0)


@pytest.fixture
def fuzzed(home: Nursery, digits_model: str, tmp_path: Path) -> str:
    """A run with failures."""
    arguments = ("--recipe", "noise", "--set", "mutate.eps=0.5", "--cases", "400", "--run", "fuzzed")
    home.run("fuzz", digits_model, "--data", "digits/train[:40]", *arguments).ended(0)
    return "fuzzed"


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("coverage", "MODEL", "--data", "digits/test[:16]", "--training", "digits/train[:40]", "--by", "nc, kmnc, nlc"),
        (
            "prioritise",
            "MODEL",
            "--pool",
            "digits/test[:16]",
            "--by",
            "gini, fol, dsa, lsa, cam(criterion=nc)",
            "--training",
            "digits/train[:40]",
        ),
        ("shrink", "fuzzed", "--k", "8"),
        ("select", "fuzzed", "-k", "8", "--by", "k_multisection(score=fol)"),
        ("transfer", "MODEL", "OTHER", "--data", "digits/test[:16]", "--eps", "0.1", "--suite", "pgd(steps=3)"),
    ],
    ids=lambda command: str(command[0]),
)
def test_other_verbs(home: Nursery, digits_model: str, fuzzed: str, tmp_path: Path, command: tuple[str, ...]) -> None:
    shutil.copytree(tmp_path / "runs", tmp_path / "other")
    full = Full(tmp_path / "log", MOST)
    other = shutil.copy(digits_model.partition("@")[2], tmp_path / "other.safetensors")
    named = {"MODEL": digits_model, "OTHER": f"lenet5@{other}"}
    arguments = [named.get(word, word) for word in command]
    short = home.run(*arguments, "--json", before=full.trap).ended(0, "out of memory with")
    found_once(full)
    env = {"ASSAY_RUNS": str(tmp_path / "other")}
    like = home.run(*arguments, "--json", before=room_for(min(full.failed()) // 2), env=env).ended(0)
    assert bare(short.json) == bare(like.json)


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["plain", "adversarial(eps=0.1, attack=pgd(steps=2))"])
def test_training_in_parts(home: Nursery, tmp_path: Path, trainer: str) -> None:
    arguments: tuple[str, ...] = (
        "train",
        "lenet5",
        "--data",
        "digits",
        "--trainer",
        trainer,
        "--epochs",
        "1",
        "--batch",
        "64",
    )
    arguments += ("--deterministic", "--optimiser", "sgd", "--lr", "0.05")
    full = Full(tmp_path / "log", MOST, "training")
    home.run(*arguments, "--out", "short.safetensors", before=full.trap).ended(0, "out of memory with 64 rows")
    found_once(full)
    assert full.failed() == [64, 32, 16, 8]
    home.run(*arguments, "--out", "whole.safetensors").ended(0)
    short, whole = (checkpoint.read(tmp_path / f"{name}.safetensors")[0] for name in ("short", "whole"))
    for name, weight in whole.items():  # gradients of parts, weighted, add up to that of the whole, but for rounding
        torch.testing.assert_close(short[name], weight, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_hardening_and_its_training(home: Nursery, digits_model: str, tmp_path: Path) -> None:
    arguments: tuple[str, ...] = (
        "harden",
        digits_model,
        "--data",
        "digits",
        "--recipe",
        "renew",
        "--until",
        "fgsm>=0.99",
        "--eps",
    )
    arguments += ("0.4", "--rounds", "1", "--fuzz-cases", "60", "--test-cases", "40", "--val-cases", "40", "--suite")
    arguments += ("fgsm", "--no-control", "--run", "hard", "--per-round", "20", "--set", "train.epochs=1", "--quiet")
    full = Full(tmp_path / "log", 20, "training")
    code = home.run(*arguments, before=full.trap)
    assert code.code in (0, 1), code.err
    assert "Traceback" not in code.err
    failed = full.failed()
    assert failed
    assert min(failed) > 20
    for verb in ("status", "report"):
        home.run(verb, "hard").ended(0)


@pytest.mark.slow
def test_a_generator_in_training(home: Nursery, tmp_path: Path) -> None:
    full = Full(tmp_path / "log", 4, "forward")
    arguments = (
        "aeg",
        "digits[:60]",
        "--set",
        "images=16",
        "--set",
        "epochs=1",
        "--set",
        "width=4",
        "--set",
        "batch=8",
    )
    home.run(*arguments, "--out", "aeg.safetensors", before=full.trap).ended(0, "out of memory with")
    assert (tmp_path / "aeg.safetensors").is_file()
    assert full.failed()
