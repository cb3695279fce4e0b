"""``assay shrink`` as a user types it."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from assay.cli import run


def out_of(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert run(arguments) == code
    return capsys.readouterr().out


@pytest.fixture
def fuzzed(digits_model: str, capsys: pytest.CaptureFixture[str]) -> str:
    base = ["fuzz", digits_model, "--data", "digits/train[:120]", "--recipe", "noise", "--eps", "0.4", "--run", "first"]
    assert run([*base, "--quiet"]) == 0
    capsys.readouterr()
    return "first"


def test_shrink_export_and_evaluate_what_is_left(
    fuzzed: str, digits_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = json.loads(out_of(["shrink", fuzzed, "--json"], capsys))
    assert told["by"] == "eight_bit, blocks(side=4), pixels, line(steps=10), eight_bit"
    assert 0 < told["eight_bit"] <= told["failing"]
    assert told["cases"] == told["failing"] == told["minimal"] > 0
    assert told["median"]["changed"] < told["median"]["changed_before"]
    assert told["median"]["l2"] < told["median"]["l2_before"]
    assert told["new"]
    assert (Path(told["run"]) / told["files"][0]).is_file()
    again = json.loads(out_of(["shrink", fuzzed, "--json"], capsys))
    assert again == told | {"new": False, "seconds": None}

    write = ["export", fuzzed, "--to", "npz", "--shrunk", "1", "--out", "small.npz", "--json"]
    assert json.loads(out_of(write, capsys))["cases"] == told["failing"]
    with np.load("small.npz") as arrays:
        differ = (arrays["x"] != arrays["seed_x"]).any(1).sum((1, 2))
        assert differ.tolist() == arrays["changed"].tolist()
        assert np.median(arrays["changed"]) == told["median"]["changed"]
        assert arrays["minimal"].all()
    result = json.loads(out_of(["eval", digits_model, "--data", "small.npz", "--eps", "0.01", "--json"], capsys))
    assert result["clean"]["accuracy"] == 0.0
    status = json.loads(out_of(["status", fuzzed, "--json"], capsys))
    assert status["damage"] == []
    assert run(["report", fuzzed]) == 0


def test_fuzz_shrinks_one_of_each_kind_and_status_and_report_show_it(
    digits_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["fuzz", digits_model, "--data", "digits/train[:120]", "--recipe", "noise", "--eps", "0.4", "--run", "first"]
    told = json.loads(out_of([*base, "--shrink", "--json", "--quiet"], capsys))
    kinds, made = told["kinds"], told["shrunk"]
    assert kinds["count"] == sum(pair["kinds"] for pair in kinds["pairs"])
    assert sum(pair["failures"] for pair in kinds["pairs"]) == told["failures"]
    assert made["cases"] == made["failing"] == kinds["count"]
    assert made["left_out"] == {"same_kind": told["failures"] - kinds["count"]}
    same = json.loads(out_of(["shrink", "first", "--distinct", "--json"], capsys))
    assert (same["shrunk"], same["new"]) == (made["shrunk"], False), "the very same shrinking"
    shown = out_of([*base, "--shrink", "--quiet"], capsys)
    for text in ("kinds of failures", "changed pixels (median)", "fail as 8-bit images", "made before"):
        assert text in shown

    status = json.loads(out_of(["status", "first", "--json"], capsys))
    assert status["kinds"] == kinds
    assert [one["cases"] for one in status["shrunk"]] == [kinds["count"]]
    assert f"{kinds['count']} of {kinds['count']} cases by eight_bit" in out_of(["status", "first"], capsys)
    page = Path(out_of(["report", "first"], capsys).strip())
    text = page.read_text()
    assert f"<dt>kinds of failures</dt><dd>{kinds['count']}</dd>" in text
    cards = min(60, told["failures"])
    gallery = text[text.index('id="gallery"') : text.index('id="again"')]
    assert gallery.count("<code>assay replay first ") == cards
    assert gallery.count("<figcaption>shrunk</figcaption>") == min(cards, kinds["count"])
    for source in re.findall(r'<img src="([^"]+)"', text):
        assert (page.parent / source).is_file()
    first = re.findall(r"assay replay first ([0-9a-f]+)", text)[0]
    assert json.loads(out_of(["replay", "first", first, "--json"], capsys))

    picked = json.loads(out_of(["select", "first", "--by", "random", "-k", "5", "--distinct", "--json"], capsys))
    assert (picked["picked"], picked["of"], picked["distinct"]) == (5, kinds["count"], True)
    assert picked["dropped"] == made["left_out"]
    shown = out_of(["select", "first", "--by", "random", "-k", "5", "--distinct"], capsys)
    assert f"{made['left_out']['same_kind']} like one that was taken" in shown


def test_a_budget_that_is_spent_before_the_shrinking_is_the_reason_that_json_gives(
    digits_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["fuzz", digits_model, "--data", "digits/train[:120]", "--recipe", "noise", "--eps", "0.4", "--run", "first"]
    told = json.loads(out_of([*base, "--queries", "900", "--shrink", "--json", "--quiet"], capsys))
    assert told["failures"] > 0
    assert told["shrunk"]["complete"] is False
    assert "the budget of 900 queries is spent" in told["shrunk"]["reason"]
    shown = out_of([*base, "--queries", "900", "--shrink", "--quiet"], capsys)
    assert "nothing is shrunk yet" in shown
    assert re.search(r"\d+ of at most 900 inputs", shown)


def test_the_table_says_what_was_done_and_where_it_lies(fuzzed: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = out_of(["shrink", fuzzed, "--by", "pixels", "-k", "5"], capsys)
    for text in ("by pixels", "changed pixels (median)", "→", "l2 (median)", "questions a case", "seconds"):
        assert text in shown
    assert "state/shrunk-001-000000.safetensors" in shown
    assert "next: assay export first --to npz --shrunk 1" in shown
    assert "made before" in out_of(["shrink", fuzzed, "--by", "pixels", "--k", "5", "--quiet"], capsys)
    short = out_of(["shrink", fuzzed, "--k", "3", "--budget", "4", "--any-failure"], capsys)
    assert "3, 3 not shown to be minimal" in short


def test_a_round_of_a_hardening_is_shrunk_and_the_whole_is_not(
    digits_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["harden", digits_model, "--data", "digits", "--recipe", "noise", "--until", "fgsm>=1", "--eps", "0.3"]
    small = ["--rounds", "1", "--fuzz-cases", "2000", "--val-cases", "40", "--test-cases", "40", "--no-control"]
    run([*base, *small, "--suite", "fgsm", "--set", "train.epochs=1", "--run", "h", "--quiet"])
    capsys.readouterr()
    assert run(["shrink", "h"]) == 4
    assert "assay shrink runs/h/round-001" in capsys.readouterr().err.replace(str(Path.cwd()) + "/", "")
    told = json.loads(out_of(["shrink", "runs/h/round-001", "-k", "8", "--json"], capsys))
    assert told["failing"] == told["minimal"] == 8


def test_mistakes_are_one_line_and_exit_four(fuzzed: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["shrink", fuzzed, "--by", "pixls"], "did you mean 'pixels'"),
        (["shrink", fuzzed, "--by", "blocks(side=0)"], "from 1 up"),
        (["shrink", fuzzed, "-k", "0"], "-k"),
        (["shrink", fuzzed, "--selected", "3"], "no selection 3"),
        (["shrink", "none"], "no run 'none'"),
        (["shrink", fuzzed, "--model", "lenet5@nowhere.safetensors"], "nowhere.safetensors"),
        (["export", fuzzed, "--to", "npz", "--shrunk", "2"], "no shrinking 2"),
        (["export", fuzzed, "--to", "npz", "--shrunk", "1", "--selected", "1"], "not both"),
    ):
        assert run(arguments) == 4, arguments
        told = capsys.readouterr().err
        assert message in told, told
        assert "Traceback" not in told
