"""Hostile class names, file names and answers through every verb: shown as text, never taken for anything else."""

import csv
import json
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.core.errors import INTERNAL, PASSED, USAGE
from assay.subjects.data.load import load_splits
from bad_strings import AS_TEXT, NAMES, steers
from commands import Nursery, Result


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

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
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
        ("status", run),
        ("status", run, "--json"),
        ("fuzz", model, *data, "--recipe", "noise", "--print-config"),
        ("list", "model"),
    ):
        done = shown(home.run(*arguments), PASSED, USAGE)
        if "--json" in arguments:
            json.loads(done.out)


def test_the_report_holds_no_element_of_theirs(home: Nursery, folder: Path) -> None:
    shown(home.run("report", str(folder / "runs" / "r")))
    text = (folder / "runs" / "r" / "report" / "index.html").read_bytes().decode()
    page = Page()
    page.feed(text)
    rules = next(value for name, value in page.attributes if name == "content" and "default-src" in value)
    assert "default-src 'none'" in rules
    assert "script-src" not in rules  # nothing is let in by another rule
    assert "unsafe-eval" not in rules
    assert "http" not in rules
    assert not {"script", "iframe", "object", "embed", "form", "base", "link"} & set(page.elements)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
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
