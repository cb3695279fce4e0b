"""``assay prioritise`` as a user types it."""

import json
from pathlib import Path

import numpy as np
import pytest

from assay.cli import run


def out_of(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert run(["prioritise", *arguments]) == code
    told = capsys.readouterr()
    return told.err if code else told.out


def test_a_table_with_the_share_of_faults_and_random_beside(
    digits_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = out_of(
        [digits_model, "--pool", "digits/test", "--by", "gini,mc_dropout,cam(criterion=nbc)", "-k", "30"], capsys
    )
    told = json.loads(
        out_of([digits_model, "--pool", "digits/test", "--by", "gini", "-k", "30", "--json", "--quiet"], capsys)
    )
    assert f"n=360, {told['faults']} wrong ({told['fault_share']:.1%})" in text
    for part in ("APFD", "between bounds", "wrong in first 30", "seconds", "random, 100 orders", "268 neurons"):
        assert part in text
    assert "n/a: mc_dropout: mc_dropout needs a net with dropout layers" in text
    (method,) = told["methods"]
    assert method["text"] == "gini"
    assert f"{method['apfd']:.4f}" in text
    assert method["apfd"] > 0.7 > told["random"]["mean"]["apfd"]
    assert len(method["rows"]) == 30


def test_a_file_without_labels_and_an_order_to_keep(digits_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(0).random((20, 1, 8, 8), dtype=np.float32)
    np.savez("plain.npz", x=x)
    text = out_of([digits_model, "--pool", "plain.npz", "--by", "entropy", "--out", "order.csv"], capsys)
    assert "no labels" in text
    assert "APFD" not in text
    lines = Path("order.csv").read_text().splitlines()
    assert len(lines) == 21
    assert all(line.split(",")[3].isdigit() and line.endswith(",") for line in lines[1:]), "an answer and no label"
    assert "not overwritten" in out_of([digits_model, "--pool", "plain.npz", "--out", "order.csv"], capsys, 4)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--by", "mc_dropout"], "dropout layers"),
        (["--by", "gini,entropi"], "did you mean 'entropy'"),
        (["--by", "gini,entropy", "--out", "a.csv"], "writes one order"),
        (["--by", "cam(criterion=nlc)"], "vary together"),
        (["-k", "none"], "-k is a number"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: list[str], why: str, digits_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = out_of([digits_model, "--pool", "digits/test[:20]", *arguments, "--quiet"], capsys, 4)
    assert why in told
    assert "Traceback" not in told
