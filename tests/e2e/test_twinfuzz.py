"""TwinFuzz as a user types it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.cli import run
from assay.core import store
from assay.subjects.data.load import load_data

SMALL = ["--set", "resistant.epochs=1", "--set", "resistant.share=0.05", "--set", "seeds.attacked.count=200"]
BASE = ["--data", "digits/train[:300]", "--recipe", "twinfuzz", "--eps", "0.2", "--device", "cpu"]


def out_of(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert run(arguments) == code
    return capsys.readouterr().out


def shards(told: dict[str, Any]) -> list[bytes]:
    return [p.read_bytes() for p in sorted((Path(told["run"]) / "cases").iterdir())]


@pytest.fixture(scope="module")
def built(digits_model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a resistant model that it built."""
    folder = tmp_path_factory.mktemp("twins")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_RUNS", str(folder))
        words = ["fuzz", digits_model, *BASE, *SMALL, "--cases", "600", "--deterministic", "--run", "built", "--quiet"]
        assert run(words) == 0
    return folder / "built"


@pytest.fixture
def resistant(built: Path) -> str:
    return f"lenet5@{built}/models/resistant.safetensors"


def test_fuzz_status_report_select_export(
    digits_model: str, resistant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole way with a given one, each verb on what the one before it left."""
    pair = ["fuzz", digits_model, *BASE, "--resistant", resistant, "--cases", "600", "--run", "first"]
    shown = out_of(pair, capsys)
    assert "seeds left by each step" in shown
    assert "cases that left the mined class" in shown
    assert "levels of the seeds" in shown
    assert "without a label" not in shown
    flat = " ".join(shown.split())
    assert f"tested model │ {resistant} " in flat
    assert f"vulnerable model │ {digits_model} " in flat
    told = json.loads(out_of([*pair, "--json"], capsys))
    assert told["opinions"]["leaves"] > told["failures"] == told["wrong"] > 0
    assert list(told["seeding"]["steps"]) == ["attacked", "quality", "agreed"]

    assert list(told["quality"]["scores"]) == ["fol", "zol", "entropy", "lib"]

    status = json.loads(out_of(["status", "first", "--json"], capsys))
    assert (status["failures"], status["damage"]) == (told["failures"], [])
    assert (status["opinions"], status["seeding"]) == (told["opinions"], told["seeding"])
    assert (status["models"]["tested"], status["models"]["vulnerable"]) == (resistant, digits_model)
    shown = " ".join(out_of(["status", "first"], capsys).split())
    page = " ".join(Path(json.loads(out_of(["report", "first", "--json"], capsys))["report"]).read_text().split())
    chain = ", ".join(f"{name} {count}" for name, count in told["seeding"]["steps"].items())
    for text in (flat, shown, page):
        assert f"of 300: {chain}" in text
        assert f"ssim {told['seeding']['levels']['ssim']:.3f}" in text
        assert str(told["opinions"]["leaves"]) in text
    assert f"The resistant model fails on {told['failures']} cases" in page
    assert resistant in page
    assert digits_model in page
    assert "the vulnerable model says " in page
    assert "by others" not in page
    assert "stands for it" not in page
    scores = ", ".join(f"{name} {score:.3g}" for name, score in told["quality"]["scores"].items())
    assert f"<dt>scores (median)</dt><dd>{scores}</dd>" in page
    pick = json.loads(out_of(["select", "first", "--by", "top(score=gini)", "-k", "10", "--json"], capsys))
    assert pick["picked"] == 10
    write = ["export", "first", "--to", "npz", "--selected", str(pick["selection"]), "--out", "ten.npz", "--json"]
    assert json.loads(out_of(write, capsys))["cases"] == 10
    result = json.loads(out_of(["eval", resistant, "--data", "ten.npz", "--eps", "0.01", "--json"], capsys))
    assert result["clean"]["accuracy"] == 0.0, "they fool the resistant one"


def test_a_built_one_lies_in_the_run_and_can_be_used(
    built: Path, resistant: str, digits_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out_of(["select", str(built), "--by", "top(score=gini)", "-k", "5", "--quiet"], capsys)
    status = json.loads(out_of(["status", str(built), "--json"], capsys))
    assert status["damage"] == []
    assert status["models"]["tested"] == f"resistant model built from {digits_model}"
    page = Path(json.loads(out_of(["report", str(built), "--json"], capsys))["report"]).read_text()
    assert "Failures" in page
    assert f"resistant model built from {digits_model}" in page
    write = ["export", str(built), "--to", "npz", "--out", "all.npz", "--json"]
    assert json.loads(out_of(write, capsys))["cases"] == json.loads((built / "stats.json").read_text())["failures"]
    result = json.loads(out_of(["eval", resistant, "--data", "all.npz", "--eps", "0.01", "--json"], capsys))
    assert result["clean"]["accuracy"] == 0.0


def test_the_configuration_of_a_run_makes_it_again(
    built: Path, digits_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = store.read(built).config
    assert [text.partition("(")[0] for text in told["recipe"]["seeds"]] == ["attacked", "quality", "agreed"]
    assert told["recipe"]["resistant"].startswith("resistant(")
    assert "built_from" in told["target"]
    again = ["fuzz", "--config", str(built / "campaign.toml"), "--device", "cpu"]
    told = json.loads(out_of([*again, "--run", "again", "--json"], capsys))
    assert shards(told) == [p.read_bytes() for p in sorted((built / "cases").iterdir())]
    shown = out_of(
        [*again, "--set", "seeds.quality.keep=0.9", "--set", "seeds.attacked.count=7", "--show-config"], capsys
    )
    assert "quality(keep=0.9, least=null)" in shown
    assert "count=7" in shown
    assert "built_from" not in shown, "a fact of that run"
    wider = out_of([*again, "--eps", "0.3", "--show-config"], capsys)
    assert wider.count("eps=0.3") >= 4
    assert "eps=0.2" not in wider, "a flag comes over the file, in every step of the chain"


@pytest.mark.parametrize("recipe", ["twinfuzz", "twinfuzz-code"])
def test_a_given_one_is_in_the_configuration(
    recipe: str, digits_model: str, resistant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = ["fuzz", digits_model, *BASE, "--recipe", recipe, "--resistant", resistant, "--cases", "200"]
    first = json.loads(out_of([*pair, "--deterministic", "--run", "a", "--json"], capsys))
    file = f"{first['run']}/campaign.toml"
    again = json.loads(out_of(["fuzz", "--config", file, "--run", "b", "--device", "cpu", "--json"], capsys))
    assert shards(first) == shards(again)
    assert f'resistant = "{resistant}"' in out_of(["fuzz", "--config", file, "--show-config"], capsys)


def test_a_chain_of_ones_own(
    tmp_path: Path, digits_model: str, resistant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[recipe]\nname = "twinfuzz"\nseeds = ["attacked(count=60)", "ssim(least=0.8)"]\nvalid = []\n')
    base = ["fuzz", digits_model, "--config", str(file), "--data", "digits/train[:100]", "--eps", "0.2", "--json"]
    told = json.loads(out_of([*base, "--resistant", resistant, "--cases", "100", "--run", "a"], capsys))
    assert list(told["seeding"]["steps"]) == ["attacked", "ssim"]
    assert (told["seeding"]["steps"]["attacked"], told["seeding"]["levels"]) == (60, {"ssim": 0.8})
    plain = ["fuzz", digits_model, "--data", "digits/train[:100]", "--recipe", "robot-code", "--json"]
    told = json.loads(out_of([*plain, "--set", "seeds.count=5", "--cases", "50", "--run", "b"], capsys))
    assert told["seeding"]["steps"] == {"steep": 5}
    told = json.loads(out_of([*plain, "--set", "seeds=correct", "--cases", "50", "--run", "c"], capsys))
    assert list(told["seeding"]["steps"]) == ["correct"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "seeds="], "a recipe needs seeds"),
        (["--set", "seeds=atacked"], "did you mean 'attacked'?"),
        (["--set", "seeds.qualty.keep=0.9"], "seeds has no member 'qualty'"),
        (["--set", "seeds=attacked"], "ssim knows its level from the seeds"),
        (["--resistant", "lenet5@nowhere.safetensors"], "nowhere.safetensors"),
        (["--recipe", "robot", "--resistant", "SAME"], "knows no resistant model"),
        (["--resistant", "SAME"], "the vulnerable model itself"),
        (["--recipe", "robot", "--set", "oracle=agreed"], "asks a vulnerable model beside the resistant one"),
    ],
)
def test_what_cannot_work_is_told_in_one_sentence(
    words: list[str], message: str, digits_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [digits_model if word == "SAME" else word for word in words]
    assert run(["fuzz", digits_model, *BASE, *SMALL[:4], "--run", "a", *given]) == 4
    told = capsys.readouterr()
    assert message in told.err
    assert "Traceback" not in told.err
    assert not (store.runs_root() / "a").exists()


def test_without_labels(digits_model: str, resistant: str, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("bare.npz", x=load_data("digits/train[:200]").cases.x.numpy())
    base = ["fuzz", digits_model, *BASE, "--data", "bare.npz", "--cases", "300"]
    assert run([*base, "--run", "a"]) == 4
    assert "--training" in capsys.readouterr().err
    shown = " ".join(out_of([*base, "--resistant", resistant, "--run", "b"], capsys).split())
    assert "seeds without a label" in shown
    assert "failures are by what the vulnerable model says of the clean input" in shown
    assert "needs labels" in shown
    told = json.loads(out_of([*base, "--resistant", resistant, "--run", "b", "--json"], capsys))
    assert told["seeding"]["unlabelled"] == told["stats"]["seed_list"] > 0
    built = json.loads(out_of([*base, *SMALL, "--training", "digits", "--run", "c", "--json"], capsys))
    assert built["failures"] > 0
    assert (Path(built["run"]) / "models/resistant.safetensors").exists()
    page = Path(json.loads(out_of(["report", "b", "--json"], capsys))["report"]).read_text()
    verdict = " ".join(page.partition('<p class="verdict')[2].partition("</p>")[0].split())
    seeds = told["seeding"]["seeds"]
    assert f"{seeds} of {seeds} seeds have none, and what the vulnerable model says of the clean input" in verdict
    assert "the label is what the vulnerable model says of the clean input" in page
    status = " ".join(out_of(["status", "b"], capsys).split())
    assert f"{seeds}: failures are by what the vulnerable model says" in status


def test_words_are_about_what_was_mined(digits_model: str, resistant: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the label stays the reference, no class was mined, and what leaves it is wrong."""
    base = ["fuzz", digits_model, *BASE, "--resistant", resistant, "--cases", "300"]
    both = ["--set", "opinions=leaves,leaves_wrong,agreed"]
    shown = out_of([*base, *both, "--run", "a"], capsys)
    for name in ("cases that left the mined class  ", "left the mined class and are wrong", "both models agree, wr"):
        assert name in shown
    for number, changes in enumerate((["seeds.agreed.reference=label"], ["seeds=correct", "valid=within"])):
        words = [word for change in changes for word in ("--set", change)]
        shown = out_of([*base, *words, "--run", f"b{number}"], capsys)
        assert "cases that left the class of their label" in shown
        assert "mined" not in shown


def test_it_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(out_of(["list", "--json"], capsys))
    assert {"twinfuzz", "twinfuzz-code"} <= {entry["name"] for entry in told["recipe"]}
    for kind, names in {
        "seeder": {"attacked", "agreed"},
        "filter": {"quality", "ssim", "tenengrad", "close"},
        "oracle": {"leaves", "leaves_wrong", "agreed"},
        "trainer": {"resistant"},
        "score": {"lib"},
    }.items():
        assert names <= {entry["name"] for entry in told[kind]}, kind
