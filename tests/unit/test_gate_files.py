"""JUnit, SARIF and Markdown of a gate, read back as those read them who get them."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from markdown_it.token import Token

from assay.engines.gate_result import Gate, GateFailure, GateRow
from assay.outputs.gate.junit import junit
from assay.outputs.gate.markdown import markdown
from assay.outputs.gate.sarif import sarif
from assay.outputs.gate.words import clean, uri, verdict
from bad_strings import NAMES, NAMES_THAT_ARE_MARKS, NAMES_THAT_ARE_PATHS, steers
from gate_files import WHEN, gate, read_markdown, table
from gate_files import read_junit as junit_of
from gate_files import read_sarif as sarif_of


def read_junit(made: Gate) -> ET.Element:
    return junit_of(junit(made, when=WHEN))


def read_sarif(made: Gate) -> dict[str, Any]:
    return sarif_of(sarif(made))


def tokens(made: Gate) -> list[Token]:
    return read_markdown(markdown(made))


def test_junit_has_a_case_for_every_requirement_and_every_attack() -> None:
    suite = read_junit(gate())
    cases = {case.attrib["name"]: case for case in suite.findall("testcase")}
    assert list(cases) == ["robust>=0.4", "clean_drop<=0.02", "pgd>=0.3", "regressions<=0", "fgsm", "pgd"]
    kinds = {name: [part.attrib["type"] for part in case.findall("failure")] for name, case in cases.items()}
    assert kinds == {
        "robust>=0.4": ["not met"],
        "clean_drop<=0.02": ["undecided"],
        "pgd>=0.3": ["unreliable"],
        "regressions<=0": [],
        "fgsm": [],
        "pgd": [],
    }
    failure = cases["clean_drop<=0.02"].find("failure")
    assert failure is not None
    assert failure.attrib["message"] == "0.01 is too near (n=2400 would decide it)"
    assert "-0.010 to 0.030" in str(failure.text), "GitLab shows the text alone"
    assert cases["pgd"].attrib == {"classname": "assay.attack", "name": "pgd", "time": "1.500"}
    told = {part.attrib["name"]: part.attrib["value"] for part in suite.findall("properties/property")}
    assert told["baseline"] == "lenet5@old.safetensors"
    assert told["eps"] == "0.1"
    assert "eps_text" not in told
    assert suite.findtext("system-err") == "masked_gradient: a black box beats the white box"


def test_two_rows_of_one_name_stay_two_cases() -> None:
    row = gate().rows[3]
    names = [case.attrib["name"] for case in read_junit(gate(rows=(row,) * 3)).findall("testcase")]
    assert names[:3] == ["regressions<=0", "regressions<=0 (2)", "regressions<=0 (3)"]


def test_sarif_has_a_result_for_what_does_not_hold_and_for_every_input() -> None:
    run = read_sarif(gate())
    told = [(result["ruleId"], result["level"]) for result in run["results"]]
    assert told == [
        ("requirement-not-met", "error"),
        ("requirement-undecided", "warning"),
        ("requirement-unreliable", "warning"),
        ("robust", "warning"),
        ("robust", "warning"),
        ("regression", "warning"),
        ("old-failure", "warning"),
    ]
    turned = run["results"][3]
    assert turned["message"]["text"] == (
        "Class '3' is taken for '8' after pgd, row 17 of data/test.npz, change 0.100. "
        "Ask it anew: assay replay runs/ci 0f1e2d3c4b5a6978"
    )
    assert turned["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "data/test.npz"
    assert turned["attachments"] == [{"artifactLocation": {"uri": "runs/ci/report/17.png"}}]
    again = [result["message"]["text"].partition("anew: ")[2] for result in run["results"][5:]]
    assert again == ["", "assay replay runs/first 3f1e2d3c4b5a6978"], "a clean input is in no run"
    assert (run["properties"]["failed"], run["properties"]["shown"]) == (155, 4)
    notices = [one["message"]["text"] for one in run["invocations"][0]["toolExecutionNotifications"]]
    assert notices == ["masked_gradient: a black box beats the white box", "151 of 158 results are left out"]


def test_a_gate_that_is_met_raises_no_alarm() -> None:
    run = read_sarif(gate(rows=gate().rows[3:], failed=4))
    assert {result["level"] for result in run["results"]} == {"note"}
    assert len(run["invocations"][0]["toolExecutionNotifications"]) == 1, "nothing is left out"
    empty = read_sarif(gate(rows=gate().rows[3:], failures=(), failed=0, warnings=()))
    assert empty["results"] == []


def test_an_alert_is_the_same_after_the_next_training() -> None:
    """The case has another id, the predicted class changed: it is still row 17 that pgd turns."""
    before = read_sarif(gate())["results"][3]
    other = replace(gate().failures[0], id="9" * 16, predicted="5", size=0.09)
    after = read_sarif(gate(failures=(other,)))["results"][3]
    assert before["partialFingerprints"] == after["partialFingerprints"]
    moved = read_sarif(gate(failures=(replace(other, row=18),)))["results"][3]
    assert moved["partialFingerprints"] != after["partialFingerprints"]


def test_a_model_file_is_where_requirements_fail() -> None:
    Path("nets").mkdir()
    Path("nets/my net.py").touch()
    (result, *_) = read_sarif(gate(subject="nets/my net.py:make@w.safetensors"))["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "nets/my%20net.py"
    assert uri(str(Path.cwd() / "nets" / "a.npz")) == "nets/a.npz"
    assert uri("/elsewhere/a b") == "file:///elsewhere/a%20b"


def test_many_failures_are_cut_and_the_rest_is_counted() -> None:
    one = gate().failures[0]
    many = tuple(replace(one, id=f"{n:016x}", row=n, true="\U0001f600" * 400, kind="\x00" * 400) for n in range(1500))
    run = read_sarif(gate(failures=many, failed=20_000))
    assert len(run["results"]) == 1000
    assert run["results"][0]["ruleId"] == "requirement-not-met", "what was required comes first"
    assert run["properties"]["shown"] == 997
    assert "19003 of 20003 results are left out" in str(run["invocations"])
    assert len(table(tokens(gate(failures=many, failed=20_000)), "id")) == 10


def test_the_summary_says_it_all() -> None:
    blocks = tokens(gate())
    rows = table(blocks, "requirement")
    assert [row[:2] for row in rows] == [
        ["robust>=0.4", "❌ not met"],
        ["pgd>=0.3", "⚠️ unreliable"],
        ["clean_drop<=0.02", "❔ undecided"],
        ["regressions<=0", "✅ met"],
    ]
    assert rows[0][2:5] == ["0.310", "0.280 to 0.340", "500"]
    assert rows[2][4] == "500 (of 2400 needed)"
    assert rows[3][2:] == ["0", "–", "900", ""]
    assert [row[:2] for row in table(blocks, "attack")] == [["fgsm", "0.420"], ["pgd", "0.310"]]
    examples = table(blocks, "id")
    assert [row[1] for row in examples[:3]] == ["robust", "regression", "old failure"], "one of each before a second"
    fences = [block.content for block in blocks if block.type == "fence"]
    assert fences == [
        "assay replay runs/ci 0f1e2d3c4b5a6978\n"
        "assay replay runs/first 3f1e2d3c4b5a6978\n"
        "assay replay runs/ci 1f1e2d3c4b5a6978\n"
    ]
    assert markdown(gate()).startswith("## ❌ Robustness gate: not met\n\nA requirement does not hold.")


@pytest.mark.parametrize(
    ("statuses", "said"),
    [
        (("met", "undecided"), "undecided"),
        (("undecided", "unreliable"), "unreliable"),
        (("unreliable", "not met"), "not met"),
        (("met",), "met"),
    ],
)
def test_the_verdict_is_that_of_the_worst_row(statuses: tuple[str, ...], said: str) -> None:
    rows = tuple(replace(gate().rows[0], status=status) for status in statuses)  # type: ignore[arg-type]
    assert verdict(gate(rows=rows)) == said


def test_a_gate_whose_time_ended_says_so_everywhere() -> None:
    cut = gate(complete=False)
    assert "The time ended first" in markdown(cut)
    assert "time ended first" in str(read_sarif(cut)["invocations"])
    told = {part.attrib["name"]: part.attrib["value"] for part in read_junit(cut).findall("properties/property")}
    assert told["complete"].startswith("no: the time ended first")


def test_many_classes_do_not_fill_the_page() -> None:
    met, failing = gate().rows[3], gate().rows[0]
    rows = (*(replace(met, clause=f"robust[{n}]>=0") for n in range(500)), failing)
    shown = table(tokens(gate(rows=rows)), "requirement")
    assert len(shown) == 100
    assert shown[0][1] == "❌ not met"
    assert "401 more are not shown, 401 of them met." in markdown(gate(rows=rows))


@pytest.mark.parametrize("name", dict.fromkeys((*NAMES, *NAMES_THAT_ARE_PATHS, *NAMES_THAT_ARE_MARKS)))
def test_names_that_are_made_to_be_taken_for_something_else(name: str) -> None:
    """In every place of a gate at once: three files that parse, with the name in them as text."""
    row = GateRow(name, name, "not met", name, 0.1, (0.0, 0.2), 5)
    failure = GateFailure(name or "x", name, name, name, name, name, 3, 0.1, name)
    hostile = gate(
        subject=name,
        requirement=name,
        rows=(row, row),
        baseline=name,
        attacks={name: {"accuracy": 0.5, "ci95": [0.4, 0.6], "n": 5, "seconds": 0.1}},
        warnings=({"name": name, "message": name},),
        failures=(failure, failure),
        protocol={name or "n": name, "data": name, "deep": {name: [name]}},
        run=name or None,
    )
    shown = clean(name, 200)
    suite = read_junit(hostile)
    assert suite.findall("testcase")[0].attrib["name"] == (shown or "unnamed")
    run = read_sarif(hostile)
    assert run["results"][2]["properties"]["true"] == shown
    blocks = tokens(hostile)
    cells = table(blocks, "requirement")[0]
    assert cells[0].replace("\u200b", "") == (clean(name).strip() or "–")
    assert len(cells) == 6
    for text in (*suite.itertext(), *(str(result) for result in run["results"]), markdown(hostile)):
        assert not steers(text), text


def test_numbers_that_are_none() -> None:
    row = GateRow("robust", "robust>=0.4", "unreliable", "", float("nan"), (float("-inf"), float("nan")), None)
    odd = gate(
        rows=(row,), attacks={"pgd": {"accuracy": None}}, failures=(replace(gate().failures[0], size=float("nan")),)
    )
    assert "value" not in read_sarif(odd)["results"][0]["properties"]
    assert read_sarif(odd)["results"][0]["message"]["text"] == "robust>=0.4: unreliable"
    assert "value –, 95 % interval – to –, n –" in str(read_junit(odd).findtext("testcase/failure"))
    assert table(tokens(odd), "attack") == [["pgd", "–", "–", "–", "–"]]
