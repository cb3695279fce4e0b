"""Experiments of papers: rows that are computed once, the page made from them, trainings that take turns."""

import json
import threading
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from papers import robot
from papers.figures import Panel, figure
from papers.grid import SELECTORS, SIZES, groups
from papers.page import cell, missing, write_page
from papers.rows import Rows
from papers.turns import BATCHES, Turns


def fol(value: float) -> dict[str, Any]:
    return {"mean": value, "quantiles": [value] * 7, "histogram": [1] * 46}


def numbers(static: float, white: float) -> dict[str, Any]:
    told = {"clean": 0.9, "static": static, "static_fooling": static, "white": white}
    picked = {"zol": [1.0] * 7, "fol": [1.0] * 7, "fooling": 0.5, "classes": [0.1, 0.2]}
    return {**told, "fol_pgd": fol(1 - white), "fol_fgsm": fol(2 - white), "picked": picked, "cases": 10}


def selected(rows: Rows, select: str, share: float, seed: int, static: float, white: float) -> None:
    protocol = {"experiment": "rq2", "data": "mnist", "eps": 0.1, "seed": seed, "select": select, "share": share}
    rows.fill(protocol, lambda: numbers(static, white))


def test_a_row_is_there_after_reopening_and_a_torn_line_is_not(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    rows = Rows(file)
    rows.fill({"seed": 0, "eps": 0.1}, lambda: {"white": 0.5})
    assert rows.has({"eps": 0.1, "seed": 0}), "the order of the keys does not matter"
    assert not rows.has({"eps": 0.1, "seed": 1})
    with file.open("a") as torn:
        torn.write('{"protocol": {"seed": 1')
    again = Rows(file)
    assert [row["numbers"] for row in again] == [{"white": 0.5}]
    again.fill({"seed": 1}, lambda: {"white": 0.25})
    assert [json.loads(line)["numbers"]["white"] for line in file.read_text().splitlines()] == [0.5, 0.25]


def test_an_error_leaves_no_row(tmp_path: Path) -> None:
    def broken() -> dict[str, Any]:
        raise KeyboardInterrupt

    rows = Rows(tmp_path / "rows.jsonl")
    with pytest.raises(KeyboardInterrupt):
        rows.fill({"seed": 0}, broken)
    assert not rows.has({"seed": 0})
    assert not rows.path.exists()


def test_cells_are_mean_and_spread() -> None:
    assert cell([0.5, 0.7]) == "0.600 ± 0.141"
    assert cell([0.25]) == "0.250"
    assert cell([]) == "–"


def test_the_page_is_made_from_the_rows(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "rows.jsonl")
    rows.fill({"experiment": "f0", "data": "mnist", "eps": 0.1, "seed": 0}, lambda: numbers(0.4, 0.1))
    for seed in (0, 1):
        for place, select in enumerate(SELECTORS.values()):
            for share in (SIZES[0], SIZES[-1]):
                selected(rows, select, share, seed, 0.8 + 0.01 * place + 0.002 * seed, 0.3)
    limited = {
        "experiment": "rq2",
        "data": "mnist",
        "eps": 0.1,
        "seed": 0,
        "select": "random",
        "share": 0.01,
        "limit": 9,
    }
    rows.fill(limited, lambda: numbers(0.0, 0.0))
    write_page(rows, tmp_path / "out")
    page = (tmp_path / "out" / "robot.md").read_text()
    assert "| static | 1% | 2 | 0.801 ± 0.001 | 0.811 ± 0.001 | 0.821 ± 0.001 | 0.831 ± 0.001 |" in page
    assert "BE-ST above DeepGini in 0 of 4" in page
    assert "random above DeepGini in 4 of 4" in page
    assert "| selection, mnist, eps 0.1 | 16 of 100 | seeds 0, 1 |" in page, "rows of a cut-down run do not count"
    for name in ("robot-rq2-mnist.svg", "robot-rq1-mnist.svg"):
        assert name in page
        ElementTree.parse(tmp_path / "out" / name)


def test_a_full_page_misses_nothing() -> None:
    rows = []
    for group in groups():
        some: list[dict[str, Any]] = [{}]
        for key, values in {"seed": group.seeds, **group.vary}.items():
            some = [{**protocol, key: value} for protocol in some for value in values]
        assert len(some) == group.size()
        rows += [{"protocol": {**protocol, **group.match}, "numbers": {}} for protocol in some]
    assert "None." in missing(rows)
    last = groups()[-1]
    assert f"| {last.title} | {last.size() - 1} of {last.size()} |" in missing(rows[:-1])


def test_a_figure_shows_every_point_where_it_belongs() -> None:
    svg = ElementTree.fromstring(figure([Panel("a & b", "x", {"one": [(0.0, 0.0, 0.0), (1.0, 1.0, 0.0)]})]))
    dots = [(float(e.attrib["cx"]), float(e.attrib["cy"])) for e in svg.iter() if e.tag.endswith("circle")]
    assert len(dots) == 2
    assert dots[0][0] < dots[1][0], "to the right"
    assert dots[0][1] > dots[1][1], "and up"


def test_a_stopped_experiment_computes_only_what_is_missing(tmp_path: Path) -> None:
    file, work = tmp_path / "rows.jsonl", str(tmp_path / "work")
    command = ["rq2", "--data", "digits", "--limit", "150", "--seeds", "0", "--sizes", "0.1", "--device", "cpu"]
    command += ["--rows", str(file), "--work", work, "--select"]
    assert robot.main([*command, "random"]) == 0
    first = file.read_text()
    assert robot.main([*command, "random", "BE-ST"]) == 0
    whole = file.read_text()
    assert whole.startswith(first), "rows that are there stay as they are"
    added = [json.loads(line) for line in whole[len(first) :].splitlines()]
    assert [row["protocol"]["select"] for row in added] == ["bi_end"]
    told = added[0]["numbers"]
    assert told["cases"] == 30, "a tenth of the two examples of each of 150 images"
    assert told["picked"]["zol"] == sorted(told["picked"]["zol"])
    assert all(0 <= told[key] <= 1 for key in ("clean", "static", "static_fooling", "white"))


def test_only_one_training_gives_orders_and_each_has_its_turn() -> None:
    turns, inside, order = Turns(), [], []

    def work(name: str) -> None:
        with turns:
            for i in range(3 * BATCHES):
                inside.append(name)
                if (i + 1) % BATCHES == 0:
                    order.append(name)
                assert inside.pop() == name
                assert not inside, "nobody else is between two steps"
                turns.batch(0, 0.0)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    with turns:  # so that all three are waiting when it begins
        for thread in threads:
            thread.start()
        while len(turns._waiting) < 3:
            pass
    for thread in threads:
        thread.join()
    assert sorted(order) == sorted("abc" * 3)
    assert len({*order[:3]}) == 3, "nobody has a second turn before all have had one"
