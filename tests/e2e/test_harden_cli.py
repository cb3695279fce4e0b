"""``assay harden`` as a user types it."""

import json
import shlex
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from assay.cli import run
from assay.outputs.screen import Screen
from assay.subjects.sources.load import trained_with

BASE = ["--data", "digits", "--recipe", "noise", "--eps", "0.1", "--fuzz-cases", "4000", "--per-round", "5%"]
CHEAP = [*BASE, "--set", "train.epochs=2", "--set", "mutate.eps=0.4", "--val-cases", "80", "--test-cases", "60"]
# Enough training on examples of PGD itself that the first round is better than the original beyond doubt.
BETTER = ["--data", "digits", "--recipe", "renew", "--eps", "0.1", "--fuzz-cases", "1000", "--per-round", "300"]
BETTER += ["--set", "train.epochs=10", "--val-cases", "80", "--test-cases", "60"]
MODELS = ("round-000", "control-001", "round-001")


def out_of(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert run(arguments) == code
    return capsys.readouterr().out


def test_unmet_is_exit_1_and_the_check_line_gives_the_same_numbers(
    digits_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["harden", digits_model, *BETTER, "--until", "pgd>=99%, fgsm>=0.99", "--rounds", "1", "--run", "h"]
    told = json.loads(out_of([*arguments, "--json"], capsys, code=1))
    assert told["met"] is False
    assert told["test_looks"] == 1
    assert told["best"] == 1
    assert told["rounds"][1]["selected"] == 300
    after = told["after"]
    assert after["clean"]["n"] == 60
    command = shlex.split(told["check"])
    assert command[:2] == ["assay", "eval"]
    again = json.loads(out_of([*command[1:], "--json"], capsys))
    for name in ("fgsm", "pgd"):
        assert again["attacks"][name]["accuracy"] == after["attacks"][name]["accuracy"]
        assert again["static"]["attacks"][name]["accuracy"] == after["static"]["attacks"][name]["accuracy"]
    assert again["clean"]["accuracy"] == after["clean"]["accuracy"]
    assert again["worst"]["accuracy"] == after["worst"]["accuracy"]

    seen: list[Any] = [trained_with(f"lenet5@{told['run']}/models/{name}.safetensors") for name in MODELS]
    assert [[name for name, _ in attacks] for attacks in seen] == [[], [], ["pgd"]]

    table = out_of(arguments, capsys, code=1)
    assert "NOT MET after 1 round (all rounds done)" in table
    assert "before" in table
    assert "control" in table
    assert "static: digits/test" in table
    assert "white box: digits/test" in table
    assert f"check it: {told['check']}" in table
    assert "undecided: the bound lies within its 95 % interval" in " ".join(table.split())
    low, high = told["verdicts"][1]["ci95"]
    assert f"{low:.4g}–{high:.4g}" in table


def test_met_is_exit_0_and_out_is_a_model(
    digits_model: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    best = tmp_path / "best.safetensors"
    arguments = ["harden", digits_model, *CHEAP, "--until", "clean>=0.5", "--run", "h", "--out", str(best)]
    told = json.loads(out_of([*arguments, "--json", "--no-control"], capsys))
    assert told["met"] is True
    assert told["best"] == 0, "the original meets that"
    assert told["control"] is None
    assert "requirement met" in out_of([*arguments, "--quiet"], capsys), "the same command may write --out again"
    shown = json.loads(
        out_of(["eval", f"lenet5@{best}", "--data", "digits/test[:60]", "--eps", "0.1", "--json"], capsys)
    )
    assert shown["clean"]["accuracy"] == told["after"]["clean"]["accuracy"]
    assert json.loads(out_of(["status", "h", "--json"], capsys))["rounds"][0]["round"] == 0


def test_the_next_step_of_a_selection_in_a_round_can_be_typed(
    digits_model: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["harden", digits_model, *CHEAP, "--until", "pgd>=0.99", "--rounds", "1", "--run", "h", "--json"]
    told = json.loads(out_of([*arguments, "--no-control"], capsys, code=1))
    inner = f"{told['run']}/round-001"
    shown = out_of(["select", inner, "--by", "random", "-k", "3"], capsys)
    line = next(line for line in shown.splitlines() if line.startswith("next: assay "))
    words = shlex.split(line.removeprefix("next: assay "))
    assert words[:2] == ["export", inner]
    assert "3 cases in" in out_of([*words, "--out", str(tmp_path / "three.npz")], capsys)


@pytest.mark.parametrize("phase", ["measure", "train"])
def test_ctrl_c_is_exit_2(
    phase: str, digits_model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(_: Screen, numbers: Mapping[str, Any]) -> None:
        if numbers["phase"] == phase:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Screen, "__call__", press)
    arguments = ["harden", digits_model, *CHEAP, "--until", "pgd>=0.99", "--rounds", "1", "--run", "h"]
    assert run(arguments) == 2
    told = capsys.readouterr()
    assert "the same command" in told.err
    assert ("NOT MET after 0 rounds (interrupted)" in told.out) == (phase == "train")


def test_where_nothing_is_asked_it_is_done_and_not_met(digits_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["harden", digits_model, *CHEAP, "--rounds", "1", "--run", "free"]) == 0
    shown = capsys.readouterr().out
    assert "done after 1 round (all rounds done)" in shown
    assert "MET" not in shown


def test_mistakes_are_exit_4(digits_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["harden", digits_model, *CHEAP, "--until", "pgd<=0.5"]) == 4
    assert "points the wrong way" in capsys.readouterr().err
    assert run(["train", "mlp", "--data", "digits", "--epochs", "2", "--time", "5s", "--out", "m.safetensors"]) == 4
    assert "give one of them" in capsys.readouterr().err
    assert run(["harden", digits_model, *CHEAP, "--ablate"]) == 4
    assert "names no parts" in capsys.readouterr().err
    assert run(["harden", digits_model, *CHEAP, "--until", "pgd>=0.5", "--data", "digits/train"]) == 4
    assert "whole data set" in capsys.readouterr().err
