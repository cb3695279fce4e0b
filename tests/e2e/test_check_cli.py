"""``assay check`` as it is typed: what it prints, writes and exits with."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from assay.cli import run
from gates import BAD, DATA, NEW, OLD, prepare


@pytest.fixture(autouse=True)
def _files(_own_folder: None, tmp_path: Path) -> None:
    prepare(tmp_path)


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code = run(["check", *arguments, "--json", "--quiet"])
    return code, json.loads(capsys.readouterr().out)


def test_a_gate_that_is_met(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", NEW, "--data", DATA, "--require", "robust>=0.5, robust[*]>=0.4", "--eps", "0.05"]) == 0
    out, err = capsys.readouterr()
    assert "robust[dark]>=0.4" in out
    assert out.rstrip().endswith("the gate is met: all 3 hold")
    assert "error" not in err


def test_a_gate_that_is_not_met_exits_1_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["check", NEW, "--data", DATA, "--require", "robust>=0.9, robust[dark]>=0.7, clean>=0.5", "--eps", "0.05"]
    assert run(asked) == 1
    out = capsys.readouterr().out
    assert "not met: robust is 74 % of 200 inputs (95 % interval 67.5 to 79.6 %); at least 90 % is required" in out
    assert "undecided: robust[dark] is 75 % of 100 inputs of class dark" in out
    assert out.rstrip().endswith("the gate is NOT met: 1 of 3 not met, 1 undecided")


def test_json_has_everything(capsys: pytest.CaptureFixture[str]) -> None:
    code, gate = told(
        capsys,
        NEW,
        "--data",
        DATA,
        "--require",
        "clean_drop<=0.02",
        "--baseline",
        OLD,
        "--suite",
        "fgsm",
        "--eps",
        "0.05",
    )
    assert code == 1
    assert not gate["met"]
    assert gate["baseline"] == OLD
    assert gate["rows"][0]["value"] == 0.105
    assert gate["compared"]["robust"]["b"] == 52
    assert gate["protocol"]["attacks"]["fgsm"].startswith("fgsm(")


def test_files_for_machines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    files = ["--junit", "j.xml", "--sarif", "s.json", "--markdown", "m.md"]
    code, gate = told(
        capsys, NEW, "--data", DATA, "--require", "robust>=0.9", "--eps", "0.05", "--save", "kept", *files
    )
    assert code == 1
    assert ET.parse("j.xml").getroot().get("failures") == "1"
    assert json.loads(Path("s.json").read_text())["version"] == "2.1.0"
    assert "robust>=0.9" in Path("m.md").read_text()
    assert summary.read_text().startswith("before\n")
    assert Path("m.md").read_text() in summary.read_text()
    folder = Path(gate["run"]) / "gate"
    assert sorted(path.name for path in folder.iterdir()) == ["junit.xml", "sarif.json"]
    assert run(["replay", "kept", gate["failures"][0]["id"], "--quiet"]) == 0, "the id is that of the run"


def test_a_run_is_not_measured_on_other_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["eval", NEW, "--data", DATA, "--suite", "fgsm", "--eps", "0.05", "--save", "kept", "--quiet"]) == 0
    assert run(["check", "kept", "--data", DATA, "--require", "clean>=0.5"]) == 4
    assert "leave --data out" in capsys.readouterr().err


def test_a_run_is_a_gate_too_and_keeps_its_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["eval", NEW, "--data", DATA, "--suite", "fgsm", "--eps", "0.05", "--save", "kept", "--quiet"]) == 0
    capsys.readouterr()
    code, gate = told(capsys, "kept", "--require", "robust>=0.5")
    assert (code, gate["rows"][0]["value"]) == (0, 0.74)
    assert (Path(gate["run"]) / "gate" / "junit.xml").is_file()
    assert run(["status", "kept"]) == 0, "the run is as good as before"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([NEW, "--data", DATA], "nothing is required"),
        ([NEW, "--data", DATA, "--require", "clean_drop<=0.02"], "--baseline OLD_MODEL"),
        ([NEW, "--data", DATA, "--require", "robust>0.5"], "write NAME>=NUMBER"),
        ([NEW, "--data", DATA, "--require", "robust>=0.5", "--junit", "no/such/folder.xml"], "cannot be written"),
        ([NEW, "--require", "robust>=0.5"], "a model is checked on data: --data"),
        ([NEW, "--data", DATA, "--require", "robust>=0.5", "--eps", "0.1", "--decide", "dice"], "interval or by point"),
        ([NEW, "--data", DATA, "--fuzz-regressions", "1s"], "--baseline OLD_MODEL"),
    ],
)
def test_mistakes_exit_4(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    assert run(["check", *arguments]) == 4
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err


def test_nothing_to_test_exits_5(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", NEW, "--data", f"{DATA}[:0]", "--require", "clean>=0.5"]) == 5
    assert "error" in capsys.readouterr().err


def test_fuzzing_finds_what_the_old_version_got_right(capsys: pytest.CaptureFixture[str]) -> None:
    code, gate = told(capsys, BAD, "--data", DATA, "--baseline", OLD, "--fuzz-regressions", "3s")
    row = gate["rows"][0]
    assert (code, row["name"], row["status"]) == (1, "regressions", "not met")
    assert row["value"] > 0
    assert {failure["kind"] for failure in gate["failures"]} == {"regression"}
    assert Path(gate["fuzzed"]).is_dir()
    code, gate = told(capsys, OLD, "--data", DATA, "--regressions", gate["fuzzed"])
    assert (code, gate["rows"][0]["value"]) == (0, 0.0), "none of them fails the old version"
