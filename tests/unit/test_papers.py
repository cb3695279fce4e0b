"""Experiments of papers: rows that are computed once, the page made from them, trainings that take turns."""

import json
import threading
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from assay.core.cases import Cases
from papers import robot
from papers.figures import Panel, figure
from papers.grid import SELECTORS, SIZES, TIMES, groups
from papers.makers import TOOLS, Makers
from papers.page import missing, write_page
from papers.rows import Rows
from papers.subject import Subject
from papers.tables import cell, column, pairs, won
from papers.turns import BATCHES, Turns


def fol(value: float) -> dict[str, Any]:
    return {"mean": value, "quantiles": [value] * 7, "histogram": [1] * 46}


def numbers(static: float, white: float) -> dict[str, Any]:
    told = {"clean": 0.9, "static": static, "static_fooling": static, "white": white}
    picked = {"zol": [1.0] * 7, "fol": [1.0] * 7, "fooling": 0.5, "classes": [0.1, 0.2]}
    return {**told, "fol_pgd": fol(1 - white), "fol_fgsm": fol(2 - white), "picked": picked, "cases": 10}


def put(rows: Rows, protocol: dict[str, Any], told: dict[str, Any]) -> None:
    rows.fill(protocol, lambda: told)


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


@pytest.fixture(scope="module")
def makers(tmp_path_factory: pytest.TempPathFactory) -> Makers:
    """Tools at work on a small net of digits."""
    work = tmp_path_factory.mktemp("work")
    return Makers(Subject("digits", 0.1, 0, "cpu", work, 150), work / "made", 150)


def inputs(cases: Cases) -> set[bytes]:
    return {x.numpy().tobytes() for x in cases.x}


def seeds(cases: Cases) -> set[bytes]:
    return {x.numpy().tobytes() for x in cases.info["seed_x"]}


@pytest.mark.parametrize("maker", [*TOOLS.values(), "attack"])
def test_a_pool_is_failures_of_training_images(makers: Makers, maker: str) -> None:
    subject = makers.subject
    made = makers.pool(maker, 0.3)
    assert len(made.cases), "it finds some"
    assert not subject.right(subject.f0, made.cases).any(), "f0 fails every one"
    assert seeds(made.cases) <= inputs(subject.part("train")), "and they grew from training images"
    assert made.told["found"] >= made.told["distinct"] >= made.told["broken"] > 0
    assert {"fol", "zol", "gini"} <= set(made.cases.info), "scored, so that selectors can choose"
    if maker == "attack":
        assert float((made.cases.x - made.cases.info["seed_x"]).abs().max()) <= 0.1 + 1e-6
    else:
        assert made.told["relative"] < 0.5


@pytest.mark.parametrize("maker", TOOLS.values())
def test_tests_are_of_test_images_that_nobody_learns_from(makers: Makers, maker: str) -> None:
    subject, made = makers.subject, makers.tests(maker)
    assert seeds(made.cases) <= inputs(subject.part("test")) - inputs(subject.part("train"))
    assert not seeds(made.cases) & inputs(subject.part("val")), "nor is an epoch chosen by them"
    assert made.told["used"] == len(made.cases) == made.told["found"]
    assert makers.judged(subject.module)[maker] == 0, "f0 fails all of them"


def test_what_was_made_is_not_made_again(makers: Makers) -> None:
    again = Makers(makers.subject, makers.folder, 150)
    for maker in ("adapt", "attack"):
        first, second = makers.pool(maker, 0.3), again.pool(maker, 0.3)
        timed = {"made_seconds": second.told["made_seconds"]}  # opening a run again is counted, too: milliseconds
        assert first.told | timed == second.told
        assert inputs(first.cases) == inputs(second.cases)


def test_rows_on_what_tools_make(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    command = ["--data", "digits", "--limit", "150", "--seeds", "0", "--sizes", "0.1", "--times", "0.3"]
    command += ["--device", "cpu", "--select", "random", "--makers", "adapt", "robot", "noise"]
    command += ["--rows", str(file), "--work", str(tmp_path / "work")]
    assert robot.main(["pools", "transfer", "rq3", *command]) == 0
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    told = [tuple(r["protocol"].get(k) for k in ("experiment", "maker", "select")) for r in rows]
    assert told == [
        ("pools", "adapt", "random"),
        ("pools", "robot", "random"),
        ("transfer", None, "f0"),
        ("transfer", None, "none"),
        ("transfer", None, "random"),
        ("rq3", "adapt", None),
        ("rq3", "robot", None),
        ("rq3", "noise", None),
    ]
    for row in rows:
        assert set(row["numbers"]["tests"]) == set(TOOLS.values())
        assert all(0 <= row["numbers"][key] <= 1 for key in ("clean", "static", "static_fooling", "white"))
    pool, f0, time = rows[0], rows[2], rows[5]
    assert pool["protocol"]["recipe"]["strategy"].startswith("adapt("), "the whole recipe is part of the row"
    assert pool["numbers"]["cases"] == 30, "as many as a tenth of the attack-made pool"
    assert pool["numbers"]["found"] == time["numbers"]["found"], "one pool serves both"
    assert time["numbers"]["cases"] == min(time["numbers"]["found"], 150), "no more than there are images"
    assert set(f0["numbers"]["tests"].values()) == {0.0}
    assert f0["numbers"]["tests_made"]["adapt"]["used"] > 0
    before = file.read_text()
    assert robot.main(["pools", "transfer", "rq3", *command]) == 0
    assert file.read_text() == before


def test_pairs_differ_in_one_field_only() -> None:
    def row(seed: int, maker: str, static: float) -> dict[str, Any]:
        protocol = {"seed": seed, "maker": maker, "recipe": {"name": maker}, "time": 2.0}
        return {"protocol": protocol, "numbers": {"static": static, "tests": {"adapt": static / 2}}}

    rows = [row(0, "robot", 0.5), row(0, "adapt", 0.25), row(1, "robot", 0.5), row(1, "adapt", 0.75)]
    rows.append(row(2, "robot", 1.0))
    assert pairs(rows, "maker", "robot", "adapt", "static") == [0.25, -0.25]
    assert pairs(rows, "maker", "robot", "adapt", "tests.adapt") == [0.125, -0.125]
    assert won([0.25, -0.25, 0.0]) == "1 of 3"
    assert column(rows, "tests.robot") == [], "what a row has not is left out"


def test_the_page_tells_of_tools_what_the_rows_say(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "rows.jsonl")
    here = {"data": "mnist", "eps": 0.1, "seed": 0}
    on = {**here, "device": "cuda"}
    tests = dict.fromkeys(TOOLS.values(), 0.6)
    found = {"found": 50, "distinct": 40, "broken": 30, "tried": 90, "made_seconds": 8.5, "linf": 0.3, "relative": 0.2}
    for place, select in enumerate(SELECTORS.values()):
        told = numbers(0.5 + 0.1 * place, 0.4 - 0.1 * place) | {"tests": tests}
        for maker in TOOLS.values():
            protocol = {"experiment": "pools", **on, "time": TIMES[-1], "maker": maker, "select": select, "share": 0.1}
            put(rows, protocol, told | found)
        put(rows, {"experiment": "transfer", **here, "select": select, "share": 0.1}, told)
    for maker, count, static in (("robot", 20, 0.75), ("adapt", 80, 0.5)):
        told = numbers(static, 0.2) | found | {"found": count, "distinct": count // 2, "tests": tests}
        put(rows, {"experiment": "rq3", **on, "time": TIMES[0], "maker": maker}, told)
    write_page(rows, tmp_path / "out")
    page = (tmp_path / "out" / "robot.md").read_text()
    assert (
        "static: BE-ST above DeepGini in 0 of 3, KM-ST above DeepGini in 0 of 3, random above DeepGini in 3 of 3"
        in page
    )
    assert "white box: BE-ST above DeepGini in 3 of 3" in page
    assert "| BE-ST, 10% | 1 | 0.600 | 0.600 | 0.600 | 0.600 | 0.500 | 0.500 | 0.400 |" in page
    assert "| *KM-ST, the paper* |  | 0.806 | 0.747 | 0.757 | – | – | – | – |" in page
    assert "FOL-Fuzz finds 0.25 times as many failing cases as ADAPT" in page
    assert (
        "its nets are ahead of ADAPT's in 1 of 1 pairs on static examples that fool f0 and in 0 of 1 under white"
        in page
    )
    assert f"| {TIMES[0]:g} s | FOL-Fuzz | 1 | 8.5 | 20 | 10 | 30 | 10 | 0.20 | 0.750 | 0.750 | 0.200 | 0.900 |" in page


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
