"""DARE as a user types it: a net trained with a held-out half and a history, hardened with recipe dare."""

import json
import shlex
from pathlib import Path

import pytest

from assay.cli import run
from assay.subjects.sources import checkpoint

CHEAP = ["--data", "digits", "--eps", "0.05", "--val-cases", "80", "--test-cases", "60"]
UNTIL = ["--until", "pgd>=0.999"]


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LeNet-5 trained on half of digits, all its epochs kept."""
    out = tmp_path_factory.mktemp("dare") / "v.safetensors"
    words = ["train", "lenet5", "--data", "digits", "--hold-out", "0.5", "--history", "all", "--out", str(out)]
    assert run([*words, "--epochs", "10", "--batch", "32", "--lr", "0.002", "--quiet"]) == 0
    return out


def out_of(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert run(arguments) == code
    return capsys.readouterr().out


def test_dare_from_end_to_end(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["harden", f"lenet5@{net}", *CHEAP, *UNTIL, "--recipe", "dare", "--run", "d"]
    told = json.loads(out_of([*words, "--json"], capsys, code=1))
    assert told["stopped"] == "the recipe trains once"
    assert [done["made"] for done in told["rounds"]] == ["original", "trained"]
    assert all(told[column] is not None for column in ("before", "noise", "control", "after"))
    assert told["noise_does_as_well"] in (True, False)
    notes = told["rounds"][1]["notes"]
    assert notes["history"] == str(net.with_name("v.history"))
    assert not notes["history_made"]
    assert notes["inputs_from"] == "held-out part"
    assert 0 < notes["used"] <= notes["inputs"] < 800
    assert notes["layer"] == "act2"
    assert notes["slice"] == "units"
    assert notes["lr"] in (1e-6, 1e-5, 1e-4)

    facts = checkpoint.read_meta(Path(told["run"]) / "models/round-001.safetensors")["training"]
    assert facts["notes"] == notes
    assert facts["trainer"].startswith("dare(")
    beside = checkpoint.read_meta(Path(told["run"]) / "models/control-001.safetensors")["training"]
    assert beside["trainer"].startswith("plain(")
    assert beside["train_fingerprint"] != facts["train_fingerprint"], "the control learns from the half that is mined"

    again = json.loads(out_of([*shlex.split(told["check"])[1:], "--json"], capsys))
    assert again["worst"]["accuracy"] == told["after"]["worst"]["accuracy"]
    assert again["clean"]["accuracy"] == told["after"]["clean"]["accuracy"]

    shown = out_of(words, capsys, code=1)
    for text in ("noise", "control", "cut after", "mined", "NOT MET after training (the recipe trains once)"):
        assert text in shown
    assert ("this is no sign of robustness" in shown) == told["noise_does_as_well"]
    assert "selected" not in shown
    assert "(trained)" in out_of(["status", "d"], capsys)


def test_a_history_elsewhere_is_named_and_a_net_without_one_gets_one(
    net: Path, digits_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.safetensors"
    other.write_bytes(net.read_bytes())
    words = [*CHEAP, *UNTIL, "--recipe", "dare-noslice", "--no-control", "--json", "--set", "train.epochs=1"]
    history = ["--history", str(net.with_name("v.history"))]
    told = json.loads(out_of(["harden", f"lenet5@{other}", *words, *history, "--run", "a"], capsys, code=1))
    notes = told["rounds"][1]["notes"]
    assert notes["history"] == history[1]
    assert notes["slice"] == "all"
    assert told["control"] is None
    assert "noise" not in told
    made = json.loads(out_of(["harden", digits_model, *words, "--run", "b"], capsys, code=1))
    notes = made["rounds"][1]["notes"]
    assert notes["history_made"]
    assert notes["inputs_from"].startswith("training part")


def test_mistakes_are_exit_4(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = f"lenet5@{net}"
    assert run(["fuzz", model, "--data", "digits/test", "--recipe", "dare", "--eps", "0.1"]) == 4
    assert "recipe dare finds no cases, it trains: assay harden" in capsys.readouterr().err
    words = ["harden", model, *CHEAP, *UNTIL, "--recipe", "dare"]
    for wrong, said in {
        "--fuzz-cases 100": "--fuzz-cases would have no effect",
        "--per-round 10%": "--per-round would have no effect",
        "--set train.sliec=all": "did you mean 'slice'",
        "--set select=top": "select says nothing there",
        "--set control=pgd": "unknown trainer 'pgd'",
    }.items():
        assert run([*words, *wrong.split()]) == 4
        assert said in " ".join(capsys.readouterr().err.split())
    assert run(["harden", model, *CHEAP, *UNTIL, "--recipe", "noise", "--set", "train=dare"]) == 4
    assert "learns from the model's past" in capsys.readouterr().err


def test_the_recipes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    shown = out_of(["list", "recipe"], capsys)
    for name in ("dare", "dare-last", "dare-noslice", "dare-notransform"):
        assert name in shown
