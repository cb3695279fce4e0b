"""``assay select`` and ``assay export`` as a user types them."""

import json
from pathlib import Path

import numpy as np
import pytest

from assay.cli import run


@pytest.fixture(autouse=True)
def _run(digits_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["fuzz", digits_model, "--data", "digits/train[:120]", "--recipe", "noise", "--eps", "0.4", "--run", "first"]
    assert run([*base, "--quiet"]) == 0
    capsys.readouterr()


def out_of(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert run(arguments) == code
    return capsys.readouterr().out


def test_select_export_and_evaluate_what_came_out(digits_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole way: pick, write, and read it back as data on which the model fails."""
    pick = ["select", "first", "--by", "bi_end", "-k", "10", "--json"]
    told = json.loads(out_of(pick, capsys))
    assert told["picked"] == sum(told["classes"].values()) == 10
    assert told["score"]["name"] == "fol"
    assert told["score"]["smallest"] <= told["score"]["median"] <= told["score"]["largest"]
    assert told["new"]
    again = json.loads(out_of(pick, capsys))
    assert again == told | {"new": False}

    write = ["export", "first", "--to", "npz", "--selected", str(told["selection"]), "--out", "ten.npz", "--json"]
    assert json.loads(out_of(write, capsys))["cases"] == 10
    result = json.loads(out_of(["eval", digits_model, "--data", "ten.npz", "--eps", "0.01", "--json"], capsys))
    assert result["clean"]["accuracy"] == 0.0
    assert run(write) == 4
    assert "ten.npz exists and is not overwritten" in capsys.readouterr().err


def test_select_shows_a_table_and_writes_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    shown = out_of(["select", "first", "--by", "k_multisection(sections=20)", "-k", "12", "--seed", "3"], capsys)
    assert "12 of " in shown
    assert "of each class" in shown
    assert "smallest" in shown
    assert "next: assay export first --to npz --selected 1" in shown
    shown = out_of(["select", "first", "--by", "random", "-k", "5", "--out", "five.npz"], capsys)
    assert "selected-002" in shown
    with np.load("five.npz") as arrays:
        assert len(arrays["x"]) == 5
    assert run(["select", "first", "--by", "random", "-k", "6", "--out", "five.npz"]) == 4
    status = json.loads(out_of(["status", "first", "--json"], capsys))
    assert status["damage"] == []
    assert not (Path(status["path"]) / "state" / "selected-003.safetensors").exists(), "refused before the work"


def test_select_takes_training_data(capsys: pytest.CaptureFixture[str]) -> None:
    pick = ["select", "first", "--by", "top(score=mdsa)", "-k", "5", "--json"]
    told = [json.loads(out_of([*pick, *more], capsys)) for more in ([], ["--training", "digits/train[:300]"])]
    assert [one["selection"] for one in told] == [1, 2]
    assert told[0]["score"] != told[1]["score"], "what the net was trained with decides what surprises it"


def test_of_an_evaluation_the_share_left_out_is_told(digits_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    measure = ["eval", digits_model, "--data", "digits/test[:60]", "--suite", "fgsm", "--eps", "0.05", "--each"]
    out_of([*measure, "--static-from", digits_model, "--save", "kept", "--json"], capsys)
    pick = ["select", "kept", "--by", "random", "-k", "50%"]
    told = json.loads(out_of([*pick, "--json"], capsys))
    every, dropped = told["of"] + sum(told["dropped"].values()), told["dropped"]
    assert dropped["static"] == every / 2, "as many were made on the other model"
    assert (told["k"], told["picked"]) == (round(told["of"] / 2), round(told["of"] / 2))
    shown = out_of(pick, capsys)
    assert f"{dropped['static']} static" in shown
    assert f"{dropped['not failing']} not failing" in shown
    assert f"of {every})" in shown
    whole = json.loads(out_of([*pick, "--all", "--static", "--json"], capsys))
    assert (whole["of"], whole["dropped"]) == (every / 2, {"white-box": every / 2})


def test_a_hardening_is_selected_from_and_exported(digits_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["harden", digits_model, "--data", "digits", "--recipe", "noise", "--until", "fgsm>=1", "--eps", "0.3"]
    small = ["--rounds", "1", "--fuzz-cases", "2000", "--val-cases", "40", "--test-cases", "40", "--no-control"]
    run([*base, *small, "--suite", "fgsm", "--set", "train.epochs=1", "--run", "h", "--quiet"])
    capsys.readouterr()
    found = json.loads(out_of(["export", "h", "--to", "npz", "--json"], capsys))["cases"]
    assert found == json.loads(out_of(["export", "runs/h/round-001", "--to", "npz", "--json"], capsys))["cases"] > 0
    for place in ("h", "runs/h/round-001"):
        told = json.loads(out_of(["select", place, "--by", "bi_end", "-k", "10", "--json"], capsys))
        assert (told["picked"], told["of"], told["score"]["name"]) == (10, found, "fol")


def test_export_images(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", "first", "--to", "images"]) == 0
    told = capsys.readouterr()
    assert "cases in first-images" in told.out
    assert "PNG rounds to 8 bits" in told.err
    count = len(Path("first-images/index.csv").read_text().splitlines()) - 1
    assert told.out.startswith(f"{count} cases")
    assert len(list(Path("first-images").glob("*/*.png"))) == count


def test_mistakes_are_one_line_and_exit_four(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["select", "first", "--by", "bi_ned", "-k", "3"], "did you mean 'bi_end'"),
        (["select", "first", "--by", "random", "-k", "0"], "-k"),
        (["select", "first", "--by", "random", "-k", "3", "--out", "a.txt"], ".npz or .parquet"),
        (["export", "first", "--to", "npy"], "did you mean 'npz'"),
        (["export", "none", "--to", "npz"], "no run 'none'"),
        (["export", "first", "--to", "npz", "--selected", "9"], "no selection 9"),
    ):
        assert run(arguments) == 4, arguments
        told = capsys.readouterr().err
        assert message in told
        assert "Traceback" not in told
