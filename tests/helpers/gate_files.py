"""A gate made by hand, and the files of any gate read back as those read them who get them."""

import json
import re
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree as ET

from markdown_it import MarkdownIt
from markdown_it.token import Token

import sarif_rules
from assay.engines.gate_result import Gate, GateFailure, GateRow

WHEN = datetime(2026, 11, 16, 8, 30, tzinfo=UTC)
_LEGAL = re.compile("[\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")  # what XML 1.0 allows
_SUITE = {"name", "tests", "failures", "errors", "skipped", "time", "timestamp"}


def gate(**changes: Any) -> Gate:
    """One that is not met: a row of every status, an attack, a warning, failures of every kind."""
    rows = (
        GateRow("robust", "robust>=0.4", "not met", "robust is 0.310, below 0.4", 0.31, (0.28, 0.34), 500),
        GateRow("clean_drop", "clean_drop<=0.02", "undecided", "0.01 is too near", 0.01, (-0.01, 0.03), 500, 2400),
        GateRow("pgd", "pgd>=0.3", "unreliable", "0.5, and masked_gradient fired", 0.5, (0.46, 0.54), 500),
        GateRow("regressions", "regressions<=0", "met", "none in 900 cases", 0.0, None, 900),
    )
    failures = (
        GateFailure("0f1e2d3c4b5a6978", "robust", "3", "8", "pgd", "data/test.npz", 17, 0.1, "runs/ci/report/17.png"),
        GateFailure("1f1e2d3c4b5a6978", "robust", "3", "5", "fgsm", "data/test.npz", 17, 0.1),
        GateFailure("2f1e2d3c4b5a6978", "regression", "cat", "dog", "", "data/test.npz", 4),
        GateFailure("3f1e2d3c4b5a6978", "old failure", "cat", "dog", place="runs/first"),
    )
    told: dict[str, Any] = {
        "subject": "lenet5@new.safetensors",
        "requirement": "robust>=0.4, clean_drop<=0.02, pgd>=0.3",
        "rows": rows,
        "baseline": "lenet5@old.safetensors",
        "attacks": {
            "fgsm": {"accuracy": 0.42, "ci95": [0.38, 0.46], "n": 500, "seconds": 0.25},
            "pgd": {"accuracy": 0.31, "ci95": [0.28, 0.34], "n": 500, "seconds": 1.5},
        },
        "warnings": ({"name": "masked_gradient", "message": "a black box beats the white box"},),
        "failures": failures,
        "failed": 155,
        "protocol": {"data": "data/test.npz", "eps": 0.1, "norm": "linf", "n": 500, "seed": 0, "eps_text": None},
        "seconds": 3.25,
        "run": "runs/ci",
    }
    return Gate(**(told | changes))


def read_junit(raw: bytes) -> ET.Element:
    """The test suite, as strict parsers and the servers read it."""
    assert _LEGAL.fullmatch(raw.decode("utf-8"))
    root = ET.fromstring(raw)  # expat ends at the first character that XML forbids
    assert root.tag == "testsuites"
    (suite,) = root
    assert suite.tag == "testsuite"
    assert set(suite.attrib) == _SUITE
    cases = suite.findall("testcase")
    assert int(suite.attrib["tests"]) == len(cases) == int(root.attrib["tests"])
    assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure")) == int(root.attrib["failures"])
    assert [part.tag for part in suite if part.tag != "testcase"] in (
        ["properties", "system-out"],
        ["properties", "system-out", "system-err"],
    )
    names = [(case.attrib["classname"], case.attrib["name"]) for case in cases]
    assert len(set(names)) == len(names), "GitLab drops the second of two"
    assert all(set(case.attrib) == {"classname", "name", "time"} and float(case.attrib["time"]) >= 0 for case in cases)
    assert all(part.text for part in suite.iter() if part.tag in ("failure", "system-out", "system-err"))
    return suite


def read_sarif(raw: bytes) -> dict[str, Any]:
    """The run of the log, which is valid and small enough for every host."""
    assert raw.isascii()
    assert len(raw) < 10_000_000
    log = json.loads(raw, parse_constant=lambda name: (_ for _ in ()).throw(ValueError(name)))
    sarif_rules.check(log)
    run: dict[str, Any] = log["runs"][0]
    return run


def read_markdown(said: str) -> list[Token]:
    """The parts of the summary: nothing but what we make of it ourselves."""
    assert len(said.encode()) < 1_000_000  # of a step's summary, GitHub shows no more
    blocks = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough").parse(said)
    assert blocks[0].tag == "h2"
    parts = [inner for block in blocks for inner in (block.children or [])]
    for part in parts:
        assert part.type in ("text", "code_inline", "html_inline", "strong_open", "strong_close"), part
        assert part.type != "html_inline" or part.content in ("<code>", "</code>"), part
        assert part.type != "text" or not re.search(r"@\w|#\d|www\.|://", part.content), part
    html = [block.content for block in blocks if block.type == "html_block"]
    assert html == ["<details><summary>What it was measured with</summary>\n", "</details>\n"]
    return blocks


def table(blocks: list[Token], title: str) -> list[list[str]]:
    """The cells of the table whose first column has that title, each as its text."""
    rows: list[list[str]] = []
    inside = False
    for block in blocks:
        if block.type == "table_open":
            rows, inside = [], True
        elif block.type == "tr_open":
            rows.append([])
        elif block.type == "inline" and inside:
            rows[-1].append("".join(c.content for c in block.children or [] if c.type != "html_inline"))
        elif block.type == "table_close":
            inside = False
            if rows[0][0] == title:
                return rows[1:]
    raise AssertionError(f"no table {title!r}")
