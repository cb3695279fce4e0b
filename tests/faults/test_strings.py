"""Hostile class names, file names and answers through every verb: shown as text, never taken for anything else."""

import base64
import csv
import hashlib
import json
import re
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.core.errors import INTERNAL, NOT_MET, PASSED, USAGE
from assay.core.plot import COLUMNS
from assay.outputs.gate.words import clean
from assay.subjects.data.load import load_splits
from bad_strings import AS_TEXT, NAMES, steers
from commands import Nursery, Result
from gate_files import read_junit, read_markdown, read_sarif, table


def digits_named(path: Path, names: tuple[str, ...]) -> Path:
    """The digits under other names."""
    parts = load_splits("digits")
    arrays: dict[str, Any] = {"classes": np.array(names)}
    for part in ("train", "val", "test"):
        data = parts.part(part)
        arrays |= {f"x_{part}": data.cases.x[:, 0].numpy(), f"y_{part}": data.cases.y.numpy()}
    np.savez(path, **arrays)
    return path


def shown(done: Result, *codes: int) -> Result:
    """What any command may print: no character that steers, no line that passes for one of ours."""
    assert done.code in (codes or (PASSED,)), done.err
    assert "Traceback" not in done.err, done.err
    assert not steers(done.out), steers(done.out)
    assert not steers(done.err), steers(done.err)
    for line in (done.out + "\n" + done.err).splitlines():
        assert not line.startswith("error: all is lost")
        assert not line.startswith("| failures | 0 |")
    return done


class Page(HTMLParser):
    """Every element, attribute and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.scripts: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script":
            self.scripts.append((dict(attrs).get("type") or "", ""))
        self.elements.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        if self.lasttag == "script" and self.cdata_elem == "script":
            kind, body = self.scripts[-1]
            self.scripts[-1] = kind, body + data
            return
        self.texts.append(data)


@pytest.fixture(scope="module")
def folder(home: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A net of hostile classes and a run of it, made by the verbs themselves."""
    place = tmp_path_factory.mktemp("hostile")
    data = digits_named(place / "d.npz", NAMES)
    env = {"ASSAY_RUNS": str(place / "runs"), "ASSAY_CACHE": str(place / "cache")}
    weights = str(place / "w.safetensors")
    shown(home.run("train", "mlp", "--data", str(data), "--out", weights, "--epochs", "3", env=env))
    given = ("--data", f"{data}/test[:80]", "--recipe", "noise", "--eps", "0.3", "--cases", "2000", "--run", "r")
    shown(home.run("fuzz", f"mlp@{weights}", *given, env=env))
    return place


@pytest.mark.slow
def test_every_verb_shows_names_as_text(home: Nursery, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_RUNS", str(folder / "runs"))
    model, data = f"mlp@{folder / 'w.safetensors'}", ("--data", f"{folder / 'd.npz'}/test[:40]")
    run = str(folder / "runs" / "r")
    for arguments in (
        ("eval", model, *data, "--suite", "fgsm", "--eps", "0.1", "--per-class"),
        ("eval", model, *data, "--suite", "fgsm", "--eps", "0.1", "--json", "--per-class"),
        ("coverage", model, *data, "--by", "nc"),
        ("transfer", model, "--to", model, *data, "--suite", "fgsm", "--eps", "0.1"),
        ("select", run, "--by", "random", "-k", "3"),
        ("shrink", run, "-k", "2"),
        ("prioritise", model, "--pool", f"{folder / 'd.npz'}/test[:40]", "--by", "gini"),
        ("check", model, *data, "--require", "clean[*]>=0.1, robust>=0.5", "--suite", "fgsm", "--eps", "0.1"),
        ("check", model, *data, "--require", "clean>=0.1", "--suite", "fgsm", "--eps", "0.1", "--json"),
        ("replay", run, "--distinct", "-k", "3"),
        ("report", run, run, "--out", str(folder / "compared.html")),
        ("status", run),
        ("status", run, "--json"),
        ("fuzz", model, *data, "--recipe", "noise", "--print-config"),
        ("list", "model"),
    ):
        done = shown(home.run(*arguments), PASSED, NOT_MET, USAGE)
        if "--json" in arguments:
            json.loads(done.out)


def test_the_report_holds_no_element_of_theirs(home: Nursery, folder: Path) -> None:
    shown(home.run("report", str(folder / "runs" / "r")))
    text = (folder / "runs" / "r" / "report" / "index.html").read_bytes().decode()
    page = Page()
    page.feed(text)
    rules = next(value for name, value in page.attributes if name == "content" and "default-src" in value)
    assert "default-src 'none'" in rules
    assert "unsafe" not in rules
    assert "http" not in rules
    # One script of ours, let in by its digest, and data that no browser runs; tests/browser shows that nothing else is.
    ours = [body for kind, body in page.scripts if kind != "application/json"]
    (allowed,) = re.findall(r"script-src 'sha256-([^' ]+)'", rules)
    assert [base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() for body in ours] == [allowed]
    for kind, body in page.scripts:
        if kind == "application/json":
            json.loads(body)
    assert not {"iframe", "object", "embed", "base", "link"} & set(page.elements)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in ("style", "action")]
    for name, value in page.attributes:
        if name in ("src", "href"):
            assert value.startswith(("images/", "#")), value
    said = "".join(page.texts)
    assert "<script>alert(1)</script>" in said  # there, as text
    assert "{{7*7}}" in said
    assert not steers(text)


def test_files_for_other_programs_hold_data_only(home: Nursery, folder: Path, tmp_path: Path) -> None:
    run = str(folder / "runs" / "r")
    for to in ("npz", "images"):
        shown(home.run("export", run, "--to", to, "--out", str(tmp_path / f"out{'.npz' if to == 'npz' else ''}")))
    with np.load(tmp_path / "out.npz", allow_pickle=False) as arrays:
        assert [str(name) for name in arrays["classes"]] == list(AS_TEXT)
    with (tmp_path / "out" / "index.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    names = {cell for row in rows[1:] for cell in row[1:3]}
    assert any(name.startswith("'=cmd") for name in names), names
    for name in names:
        assert not name.startswith(tuple("=+-@\t\r")), name
        assert not steers(name)
    assert {path.name for path in (tmp_path / "out").rglob("*")} <= _plain_names(tmp_path / "out")
    shown(
        home.run(
            "prioritise",
            f"mlp@{folder / 'w.safetensors'}",
            *("--pool", f"{folder / 'd.npz'}/test[:80]", "--by", "gini", "--out", str(tmp_path / "order.csv")),
        )
    )
    with (tmp_path / "order.csv").open(newline="") as file:
        assert not [cell for row in csv.reader(file) for cell in row[3:] if cell.startswith(("=", "@"))]


def test_the_files_of_a_gate_hold_names_as_text(home: Nursery, folder: Path, tmp_path: Path) -> None:
    """Classes in the clauses, in the failures and in the messages; read as a CI server reads them."""
    files = {form: tmp_path / f"gate.{form}" for form in ("junit", "sarif", "markdown")}
    done = home.run(
        *("check", f"mlp@{folder / 'w.safetensors'}", "--data", f"{folder / 'd.npz'}/test[:60]"),
        *("--require", "clean[*]>=0.9, robust>=0.9", "--suite", "fgsm", "--eps", "0.2"),
        *(word for form, file in files.items() for word in (f"--{form}", str(file))),
        env={"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"), "ASSAY_RUNS": str(folder / "runs")},
    )
    shown(done, NOT_MET)
    suite = read_junit(files["junit"].read_bytes())
    told = {case.attrib["name"] for case in suite.findall("testcase")}
    assert {f'clean["{clean(name)}"]>=0.9' for name in (AS_TEXT[0], AS_TEXT[5])} <= told
    run = read_sarif(files["sarif"].read_bytes())
    assert {result["properties"].get("true") for result in run["results"]} & {clean(name, 200) for name in AS_TEXT}
    blocks = read_markdown(files["markdown"].read_text())
    assert len(table(blocks, "requirement")) == len(NAMES) + 1
    assert (tmp_path / "summary.md").read_text().startswith(files["markdown"].read_text())
    for file in files.values():
        assert not steers(file.read_text())


def test_what_a_run_tells_machines_is_numbers_and_text(folder: Path, home: Nursery) -> None:
    """plot.csv and the lines of events: a cell is a number, a line is JSON, nothing steers."""
    given = ("--data", f"{folder / 'd.npz'}/test[:40]", "--recipe", "noise", "--eps", "0.3", "--cases", "400")
    env = {"ASSAY_RUNS": str(folder / "runs"), "ASSAY_CACHE": str(folder / "cache")}
    shown(home.run("fuzz", f"mlp@{folder / 'w.safetensors'}", *given, "--run", "told", "--log", "jsonl", env=env))
    run = folder / "runs" / "told"
    with (run / "plot.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert rows
    assert head == [*COLUMNS]
    assert all(cell == "" or float(cell) >= 0 for row in rows for cell in row)
    raw = (run / "events.jsonl").read_text()
    assert not steers(raw)
    assert len([json.loads(line) for line in raw.splitlines()]) >= 2


def _plain_names(folder: Path) -> set[str]:
    """Names of files that are letters, digits and little else."""
    return {path.name for path in folder.rglob("*") if path.name.replace("_", "").replace("-", "").isascii()}


def test_what_the_run_keeps_can_be_read_by_anyone(folder: Path) -> None:
    run = folder / "runs" / "r"
    raw = (run / "campaign.toml").read_bytes()
    assert not steers(raw.decode())
    told = tomllib.loads(raw.decode())
    assert told["target"]["classes"] == list(AS_TEXT)
    for line in (run / "journal.jsonl").read_text().splitlines():
        json.loads(line)
    assert (run / "journal.jsonl").read_bytes().isascii()
    json.loads((run / "stats.json").read_text())


@pytest.mark.slow
def test_names_of_files_are_text_too(home: Nursery, digits_model: str, tmp_path: Path) -> None:
    names = ["\x1b[31mred", "new\nerror: all is lost", "\udcff", "[red]x[/nope]", "<script>", "--help", "a b;rm -rf ~"]
    for name in names:
        for arguments in (
            ("eval", f"lenet5@{name}.safetensors", "--data", "digits/test[:5]"),
            ("eval", digits_model, "--data", f"{name}.npz"),
            ("eval", digits_model, "--data", f"dir:{name}"),
            ("status", name),
            ("export", name, "--to", "npz"),
            ("fuzz", digits_model, "--data", "digits/test[:5]", "--run", name),
            ("fuzz", digits_model, "--data", "digits/test[:5]", "--recipe", name),
            ("list", name),
        ):
            if name == "--help" and arguments[0] in ("status", "list", "export"):
                continue
            shown(home.run(*arguments), USAGE)
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_model_that_says_evil_things_is_quoted(home: Nursery, digits_model: str) -> None:
    evil = "\\x1b]0;t\\x07[red]\\nerror: all is lost\\n<script>\\ud800\\u202e"
    Path("net.py").write_text(
        "import numpy as np\n"
        f"def fails(x):\n    raise ValueError('{evil}')\n"
        f"def names(x):\n    return np.array(['{evil}'] * len(x))\n"
        f"class Evil(Exception):\n    def __str__(self):\n        return '{evil}'\n"
        "def make():\n    raise Evil\n"
        f"import warnings\n"
    )
    Path("w.safetensors").write_bytes(Path(digits_model.partition("@")[2]).read_bytes())
    Path("bad.py").write_text(f"raise RuntimeError('{evil}')\n")
    for model in ("call:net.py:fails", "call:net.py:names", "net.py:make@w.safetensors", "call:bad.py:x"):
        shown(home.run("eval", model, "--data", "digits/test[:5]", "--suite", "fgsm", "--eps", "0.1"), USAGE, INTERNAL)
