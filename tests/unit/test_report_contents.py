"""What the report says: numbers that are those of the run, warnings, commands that can be typed, drawings that hold."""

import re
import shlex
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree
from zipfile import ZipFile

import pytest
import torch

import assay
from assay.core import store
from assay.core.store import Store
from assay.engines.round_book import rounds_of
from assay.engines.saved import saved_evaluation, worst_pairs
from assay.outputs.report import charts, hardening
from assay.outputs.report.classes import confusion, histogram, left_out
from assay.outputs.report.contents import page_of
from assay.outputs.report.over_time import over_time, thinned
from assay.outputs.report.parts import Cell, Chart, Commands, Note, Page, Section, Table
from assay.outputs.report.reproduce import again_section

HOSTILE = '<script>alert(1)</script>"\x1b[31m\x00\ud800&'


def read(run: str | Path) -> Store:
    return store.read(store.find_run(run))


def section(page: Page, anchor: str) -> Section:
    return next(s for s in page.sections if s.anchor == anchor)


def table_of(part: object) -> dict[str, list[str]]:
    """The rows of a table by their names."""
    assert isinstance(part, Table)
    return {text(row[0]): [text(cell) for cell in row[1:]] for row in part.rows}


def text(cell: Cell | str) -> str:
    return cell.text if isinstance(cell, Cell) else cell


@pytest.fixture(scope="module")
def evaluated(digits_model: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, assay.Evaluation]:
    """A saved evaluation with a curve and a static column."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_RUNS", str(tmp_path_factory.mktemp("runs")))
        data = assay.load_data("digits/test[:60]")
        result = assay.evaluate(
            digits_model, data, suite="fast", eps="0.05,0.2", save="curve", static_from=digits_model, batch=25
        )
        assert result.run is not None
        return Path(result.run), result


def test_every_number_of_an_evaluation_stands_in_its_table(evaluated: tuple[Path, assay.Evaluation]) -> None:
    run, result = evaluated
    page = page_of(read(run))
    table = section(page, "numbers").parts[0]
    rows = table_of(table)
    for name, outcome in result.attacks.items():
        low, high = outcome.left.ci95
        shown = f"{100 * outcome.left.accuracy:.1f} % ({100 * low:.1f}–{100 * high:.1f})"
        static = result.static[name].left
        assert rows[f"left after {name}"] == [
            shown,
            f"{100 * static.accuracy:.1f} % ({100 * static.ci95[0]:.1f}–{100 * static.ci95[1]:.1f})",
            str(outcome.tried),
            str(outcome.broken),
        ]
    assert isinstance(table, Table)
    assert table.columns[1:3] == ("white box", f"static, made on {result.static_from}"), "never in one column"
    cell = table.rows[0][1]
    assert isinstance(cell, Cell)
    for fact in ("n=60", "linf eps 0.05,0.2", "suite fgsm", "seed 0", f"hash {result.protocol['data_fingerprint']}"):
        assert fact in cell.hint


def test_the_verdict_of_an_evaluation_has_both_numbers_n_and_intervals(
    evaluated: tuple[Path, assay.Evaluation],
) -> None:
    run, result = evaluated
    said = page_of(read(run)).verdict.text
    low, high = result.worst.ci95
    assert f"right on {100 * result.worst.accuracy:.1f} % (95 % interval {100 * low:.1f} to {100 * high:.1f})" in said
    assert "of 60 inputs" in said
    assert f"{100 * result.clean.accuracy:.1f} %" in said
    assert "up to 0.2 (linf)" in said
    assert "UNRELIABLE" not in said


def test_the_curve_starts_at_the_clean_accuracy(evaluated: tuple[Path, assay.Evaluation]) -> None:
    run, result = evaluated
    chart = section(page_of(read(run)), "curve").parts[0]
    assert isinstance(chart, Chart)
    found = {row[0]: text(row[1]).split(" %")[0] for row in chart.table.rows}
    expected = {"0": result.clean, "0.05": result.curve[0.05], "0.2": result.curve[0.2]}
    assert found == {eps: f"{100 * share.accuracy:.1f}" for eps, share in expected.items()}
    assert chart.svg.count("<circle") == 3
    assert "<polygon" in chart.svg, "the band of the intervals"


def test_blocks_give_the_numbers_that_were_told(evaluated: tuple[Path, assay.Evaluation]) -> None:
    run, result = evaluated
    saved = saved_evaluation(read(run))
    assert saved is not None
    assert {name: share.right for name, share in saved.shares().items()} == {
        name: outcome.left.right for name, outcome in result.attacks.items()
    }
    assert int(saved.standing().sum()) == result.worst.right
    assert result.static_worst is not None
    assert int(saved.standing(static=True).sum()) == result.static_worst.right
    assert saved.attacks() == [f"attacks/{name}" for name in result.attacks], "in the order of the work"
    spent = saved.effort("attacks/fgsm eps=0.05")
    outcome = result.attacks["fgsm eps=0.05"]
    assert (spent["tried"], spent["broken"]) == (outcome.tried, outcome.broken)
    assert spent["gradient"] == outcome.effort.gradient


def test_confusion_counts_every_input_once(evaluated: tuple[Path, assay.Evaluation]) -> None:
    run, result = evaluated
    saved = saved_evaluation(read(run))
    assert saved is not None
    pairs = worst_pairs(saved)
    assert len(pairs) == 60
    assert int((pairs[:, 0] == pairs[:, 1]).sum()) == result.worst.right
    assert pairs[:, 0].bincount(minlength=10).tolist() == saved.y.bincount(minlength=10).tolist()


def test_the_same_evaluation_is_committed_as_the_same_bytes(digits_model: str) -> None:
    for name in ("one", "two"):
        assay.evaluate(digits_model, assay.load_data("digits/test[:20]"), suite="fgsm", eps=0.1, save=name)
    one, two = (read(name).file("state/evaluation.json") for name in ("one", "two"))
    assert one == two
    assert "seconds" not in one.decode()


def test_a_check_that_fired_is_in_the_verdict_and_explained(digits_model: str) -> None:
    from assay.subjects.sources.load import load_target, module_of

    net = module_of(load_target(digits_model, data=assay.load_data("digits/test[:8]")))
    soft = torch.nn.Sequential(net, torch.nn.Softmax(1))
    result = assay.evaluate(soft, assay.load_data("digits/test[:40]"), suite="fgsm", eps=0.1, save="soft")
    assert "softmax_output" in [warning["name"] for warning in result.warnings]
    page = page_of(read("soft"))
    assert page.verdict.text.startswith("UNRELIABLE (")
    assert page.verdict.tone == "warning"
    notes = [part for part in section(page, "trust").parts if isinstance(part, Note)]
    warned = next(note for note in notes if "softmax_output" in note.text)
    assert warned.tone == "bad"
    assert warned.link == "docs/checks.md#softmax_output"
    assert "live model" in section(page, "again").parts[0].text  # type: ignore[union-attr]  # a note


def test_an_evaluation_that_did_not_end_says_so(evaluated: tuple[Path, assay.Evaluation]) -> None:
    whole = read(evaluated[0])
    lines = [line for line in whole.lines if line.meta.get("kind") in ("begin", "eval")][:2]
    page = page_of(Store(whole.path, type(whole.lines)(lines)))
    assert page.verdict.text.startswith("The evaluation has not ended: of its first 25 inputs")
    assert page.verdict.tone == "warning"
    rows = table_of(section(page, "numbers").parts[0])
    assert "worst case" in rows


def fuzzed(digits_model: str, run: str, **more: object) -> assay.Found:
    return assay.fuzz("noise", digits_model, assay.load_data("digits/train[:80]"), run=run, eps=0.4, **more)  # type: ignore[arg-type]


def test_what_fuzzing_found_is_told_with_its_seeds(digits_model: str) -> None:
    found = fuzzed(digits_model, "shown")
    page = page_of(read("shown"))
    said = page.verdict.text
    assert said.startswith(f"The target fails on {found.failures} cases found by recipe noise.")
    worked = min(found.seeds, found.seeding["seeds"])
    assert f"from {found.broken} of {worked} seeds worked on" in said
    failures = found.load()
    assert said.endswith(f" The median change is {float(failures.info['linf'].median()):.3g} (linf).")
    classes = section(page, "classes").parts[0]
    assert isinstance(classes, Chart)
    counts = {row[0]: row[1] for row in classes.table.rows}
    assert counts == {str(y): str(int((failures.y == y).sum())) for y in failures.y.unique().tolist()}
    matrix = section(page, "classes").parts[1]
    assert isinstance(matrix, Chart)
    assert sum(int(text(row[2])) for row in matrix.table.rows) == found.failures


def test_signs_of_trouble_stand_in_the_report(digits_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fuzzed(digits_model, "trouble")
    run = read("trouble")
    sign = {"name": "no_finds_yet", "message": "nothing found", "more": "docs/status.md#no_finds_yet"}
    monkeypatch.setattr(Store, "stats", lambda self: {"warnings": [sign], "seconds": 1.0})
    part = section(page_of(run), "trust").parts[0]
    assert part == Note(
        "no_finds_yet: nothing found. What it means and what to do: docs/status.md#no_finds_yet",
        "warning",
        "docs/status.md#no_finds_yet",
    )


def test_commands_are_quoted_and_name_the_run(digits_model: str) -> None:
    found = fuzzed(digits_model, "named")
    elsewhere = Path("a folder; rm x")
    (found.run).rename(elsewhere)
    commands = again_section(read(elsewhere), None).parts[0]
    assert isinstance(commands, Commands)
    for _, line in commands.rows:
        words = shlex.split(line)
        assert words[0] == "assay"
        assert any(word.startswith(str(elsewhere)) for word in words), line


def test_every_command_of_a_report_is_one_that_the_command_line_takes(digits_model: str) -> None:
    from assay.cli import run as assay_command

    data, out = "digits/train[:30]", "seen"
    assert assay_command(["fuzz", digits_model, "--data", data, "--recipe", "noise", "--eps", "0.4", "--run", out,
                          "--cases", "1500", "--quiet"]) == 0  # fmt: skip
    commands = next(p for p in section(page_of(read(out)), "again").parts if isinstance(p, Commands))
    tried = [shlex.split(line)[1:] for _, line in commands.rows if "MODEL" not in line and "10m" not in line]
    assert {words[0] for words in tried} == {"fuzz", "replay", "shrink", "export", "report"}
    for words in tried:
        assert assay_command(words) == 0, words
    assert read("seen-again").totals("fuzz") == read("seen").totals("fuzz"), "the same again"


def test_orders_are_drawn_by_the_tests_they_find(digits_model: str) -> None:
    result = assay.prioritise(digits_model, "digits/test[:50]", by="gini,entropy", k=10, run="orders")
    page = page_of(read("orders"))
    chart = section(page, "inspected").parts[0]
    assert isinstance(chart, Chart)
    assert chart.table.rows[0][1:] == ("0.0 %",) * 3
    assert chart.table.rows[-1][1:] == ("100.0 %",) * 3
    gini = result["gini"]
    assert gini.order is not None
    assert result.wrong is not None
    best = max(result.methods, key=lambda m: m.measures.apfd if m.measures and m.measures.apfd else 0.0)
    met = int(result.wrong[best.order[:10]].sum())  # type: ignore[index]  # it has an order
    assert f"meets {met} of the {result.faults} that the model gets wrong" in page.verdict.text


@pytest.mark.parametrize("kind", ["fuzz", "eval", "harden"])
def test_runs_of_older_versions_are_told(kind: str, tmp_path: Path) -> None:
    with ZipFile(Path(__file__).parents[1] / "faults" / "old_runs" / f"{kind}.zip") as old:
        old.extractall(tmp_path)
    page = page_of(read(tmp_path / "run"))
    assert page.verdict.text
    assert section(page, "again").parts
    expected = {"fuzz": "found", "eval": "numbers", "harden": "rounds"}[kind]
    assert section(page, expected).parts
    if kind == "eval":
        notes = [part.note for part in section(page, "confusion").parts if isinstance(part, Chart)]
        assert all("left out" in note for note in notes), "clean classes were not kept then"


def test_plot_is_drawn_and_a_torn_line_is_left_out(tmp_path: Path) -> None:
    rows = [
        "seconds,seeds,cases,failures,distinct,broken,kinds,coverage",
        "1.0,4,100,3,2,2,1,0.25",
        "2.0,8,200,5,4,3,2,0.5",
    ]
    (tmp_path / "plot.csv").write_text("\n".join(rows) + "\n3.0,9,2")
    found, covered = over_time(tmp_path, every=False)
    assert isinstance(found, Chart)
    assert found.table.rows == (("1", "100", "3", "2", "2"), ("2", "200", "5", "4", "3"))
    assert isinstance(covered, Chart)
    assert covered.table.rows == (("1", "25 %"), ("2", "50 %"))
    assert list(over_time(tmp_path / "none", every=False)) == []


def test_drawings_are_xml_without_styles_whatever_the_names() -> None:
    names = [HOSTILE, "b"]
    drawn = [
        charts.lines(HOSTILE, [charts.Series(n, [0, 1], [0, 0.5], [0, 0.4], [0.1, 0.6]) for n in names], HOSTILE, "y"),
        charts.bars(HOSTILE, names, {n: [charts.Bar(0.2, 0.1, 0.3), charts.Bar(0.0)] for n in names}),
        charts.columns(HOSTILE, [0.0, 1.0, 2.0], [3, 0], HOSTILE, HOSTILE),
        charts.matrix(HOSTILE, names, [[1, 2], [3, 4]]),
    ]
    for svg in drawn:
        root = ElementTree.fromstring(svg)
        assert root.tag == "svg"
        assert root.findtext("title")
        assert root.findtext("desc")
        assert not re.search(r"\bstyle=|<script|\bon\w+=", svg)
        numbers = (
            v for e in root.iter() for k, v in e.attrib.items() if k in ("x", "y", "width", "height", "cx", "cy")
        )
        assert all(float(v) == float(v) and abs(float(v)) < 1e5 for v in numbers)


def test_drawings_of_nothing_and_of_one_point() -> None:
    for series in ([], [charts.Series("a", [0.0], [0.0])], [charts.Series("a", [3.0, 3.0], [1.0, 1.0])]):
        ElementTree.fromstring(charts.lines("t", series, "x", "y"))
    ElementTree.fromstring(charts.bars("t", [], {"a": []}))
    edges, counts = histogram(torch.full((5,), 0.25))
    assert sum(counts) == 5
    ElementTree.fromstring(charts.columns("t", edges, counts, "x", "y"))


def test_many_classes_are_cut_and_that_is_told() -> None:
    n = 300
    true = torch.arange(n)
    pairs = torch.stack([true, (true + 1) % n], 1)
    [chart] = confusion(pairs, [f"class {i}" for i in range(n)], "t", "note.")
    assert isinstance(chart, Chart)
    assert chart.note == "note. Shown: 24 of 300 classes, those confused most often."
    assert chart.table.note == "Shown: 200 of 300 pairs."
    assert left_out(3, 3, "x") == ""


def test_thinned_keeps_both_ends() -> None:
    assert thinned(list(range(1000)), 3)[::2] == [0, 999]
    assert thinned([1, 2], 5) == [1, 2]


def test_hardening_is_told_white_box_and_static_apart(digits_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = assay.harden(
        "noise", digits_model, "digits", until="clean>=0.0", eps=0.1, run="hard", rounds=1, val_cases=20, test_cases=20
    )
    page = page_of(read("hard"))
    assert page.verdict.text.startswith("The requirement clean>=0 is met")
    titles = [s.title for s in page.sections if s.anchor.startswith("numbers-")]
    assert titles == ["Test part, white box", "Test part, static"]
    assert told.test is not None
    rows = table_of(section(page, "numbers-1").parts[0])
    assert rows["worst case"][0].startswith(f"{100 * told.test.before.worst.accuracy:.1f} %")
    rounds = section(page, "rounds").parts[0]
    assert isinstance(rounds, Table)
    assert rounds.note.isprintable(), "what is not is shown as a code, such as \\x202f"
    fired = [{"name": "zero_gradient", "message": "gradients are zero"}]
    spoiled = [replace(done, measured=replace(done.measured, warnings=fired)) for done in rounds_of(read("hard"))]
    monkeypatch.setattr(hardening, "rounds_of", lambda run: spoiled)
    monkeypatch.setattr(hardening, "last_result", lambda run: {})
    verdict = hardening.harden_verdict(read("hard"))
    assert verdict.text.startswith("UNRELIABLE (zero_gradient): The hardening has not ended"), (
        "told without --until too"
    )
    assert verdict.tone == "warning"


def test_a_pool_is_not_called_failures(digits_model: str) -> None:
    data = assay.load_data("digits/train[:20]")
    assay.fuzz("noise", digits_model, data, run="pool", eps=0.4, changes={"oracle": "every"}, cases=40)
    said = page_of(read("pool")).verdict.text
    assert said.startswith("Recipe noise made and kept")
    assert "failing or not" in said


def test_a_cascade_is_reproduced_in_its_order(digits_model: str) -> None:
    assay.evaluate(digits_model, "digits/test[:20]", suite="pgd(steps=3),fgsm", eps=0.1, save="order")
    [commands] = [p for p in again_section(read("order"), None).parts if isinstance(p, Commands) and not p.title]
    words = shlex.split(commands.rows[0][1])
    suite = words[words.index("--suite") + 1]
    assert suite.index("pgd(") < suite.index("fgsm(")
