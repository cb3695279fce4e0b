"""Several runs on one page: what may be compared is, with the right numbers; what may not is named and not ranked."""

from pathlib import Path
from typing import Any

import pytest
import torch

import assay
import gates
from assay.core import store
from assay.core.errors import UsageError
from assay.engines.found import summary
from assay.engines.paired import of_counts, paired
from assay.engines.saved import saved_evaluation
from assay.outputs.report.compare import comparison
from assay.outputs.report.comparing import grouped, pairwise, ranks
from assay.outputs.report.parts import Note, Page, Section, Table
from assay.outputs.report.place import page_path
from assay.subjects.sources.load import load_target, module_of


def section(page: Page, anchor: str) -> Section:
    return next(s for s in page.sections if s.anchor == anchor)


def compared(*runs: str) -> tuple[Page, dict[str, Any]]:
    return comparison([store.read(store.find_run(run)) for run in runs])


@pytest.fixture
def worse(digits_model: str) -> torch.nn.Module:
    """A net that is surely worse: the same with noise on its weights."""
    net = module_of(load_target(digits_model, data=assay.load_data("digits/test[:8]")))
    rng = torch.Generator().manual_seed(0)
    for weight in net.parameters():
        weight.data += 0.3 * weight.std() * torch.randn(weight.shape, generator=rng)
    return net


def evaluated(model: object, run: str, n: int = 120, eps: float | str = 0.1, **more: object) -> assay.Evaluation:
    data = assay.load_data(f"digits/test[:{n}]")
    return assay.evaluate(model, data, suite="fgsm", eps=eps, save=run, **more)  # type: ignore[arg-type]


def test_the_same_protocol_is_compared_input_by_input(digits_model: str, worse: torch.nn.Module) -> None:
    one, two = evaluated(digits_model, "good"), evaluated(worse, "bad")
    page, told = compared("good", "bad")
    [group] = told["groups"]
    rows = [saved_evaluation(store.read(store.find_run(run))) for run in ("good", "bad")]
    expected = paired(rows[0].standing(), rows[1].standing())  # type: ignore[union-attr]
    test = next(pair for pair in group["paired"] if pair["of"] == "worst case")
    assert {key: test[key] for key in ("n", "b", "c")} == {"n": 120, "b": expected.b, "c": expected.c}
    assert test["difference"] == pytest.approx(one.worst.accuracy - two.worst.accuracy, abs=1e-5)
    assert expected.ci95[0] > 0, "or the test below says nothing"
    assert (group["numbers"]["good"]["rank"], group["numbers"]["bad"]["rank"]) == (1, 2)
    assert page.verdict.text.startswith("Over the same 120 inputs good withstands the attacks more often than bad: +")
    assert told["differences"] == []


def test_runs_that_cannot_be_told_apart_share_a_rank(digits_model: str) -> None:
    evaluated(digits_model, "a")
    evaluated(digits_model, "b")
    page, told = compared("a", "b")
    [group] = told["groups"]
    assert {name: numbers["rank"] for name, numbers in group["numbers"].items()} == {"a": 1, "b": 1}
    assert "not told apart" in page.verdict.text


def test_many_runs_are_ranked_by_every_pair_not_only_by_those_with_the_first(tmp_path: Path) -> None:
    gates.prepare(tmp_path)
    models = [gates.BAD] * 5 + [gates.NEW, gates.OLD]
    for place, model in enumerate(models):
        assay.evaluate(model, gates.DATA, suite="fast", eps=0.05, save=f"run-{place}")
    page, told = compared(*(f"run-{place}" for place in range(7)))
    [group] = told["groups"]
    assert [group["numbers"][f"run-{place}"]["rank"] for place in range(7)] == [3, 3, 3, 3, 3, 2, 1]
    assert len(group["paired"]) == 2 * 21
    assert all(p["interval"][0] < p["ci95"][0] for p in group["paired"] if p["b"] or p["c"])
    assert page.verdict.text.endswith("none is surely better in the worst case than run-6.")
    table = section(page, "paired").parts[0]
    assert isinstance(table, Table)
    assert len(table.rows) == 2 * 6
    assert "make up for 21 pairs" in table.note


def test_one_of_many_pairs_is_not_told_apart_by_chance() -> None:
    """Six inputs of 200 that only one of two runs gets right tell these two apart, and no pair of four runs."""
    assert of_counts(6, 0, 200, level=pairwise(2)).interval[0] > 0
    assert of_counts(6, 0, 200, level=pairwise(4)).interval[0] < 0


@pytest.mark.parametrize(
    ("other", "word"),
    [
        ({"eps": 0.2}, "eps"),
        ({"norm": "l2"}, "norm"),
        ({"n": 60}, "n 50 and 60"),
        ({"seed": 1}, "seed"),
        ({"each": True}, "cascade"),
    ],
)
def test_unlike_protocols_are_not_ranked(digits_model: str, other: dict[str, object], word: str) -> None:
    evaluated(digits_model, "one", 50)
    evaluated(digits_model, "two", **{"n": 50, **other})  # type: ignore[arg-type]
    page, told = compared("one", "two")
    assert told["groups"] == []
    [differs] = told["differences"]
    assert any(word in line for line in differs["differences"])
    assert page.verdict.tone == "warning"
    assert "not ranked" in page.verdict.text
    notes = [part.text for part in section(page, "protocols").parts if isinstance(part, Note)]
    assert any(note.startswith("Not ranked: one and two were evaluated under unlike conditions") for note in notes)
    assert not [s for s in page.sections if s.anchor.startswith("numbers")]


def test_an_unreliable_number_has_no_rank(digits_model: str, worse: torch.nn.Module) -> None:
    net = module_of(load_target(digits_model, data=assay.load_data("digits/test[:8]")))
    evaluated(torch.nn.Sequential(net, torch.nn.Softmax(1)), "soft")
    evaluated(worse, "plain")
    page, told = compared("soft", "plain")
    [group] = told["groups"]
    assert group["numbers"]["soft"]["rank"] is None
    assert group["numbers"]["soft"]["unreliable"] is True
    assert "UNRELIABLE, without a rank: soft" in page.verdict.text
    table = section(page, "numbers").parts[0]
    assert isinstance(table, Table)
    assert table.columns[1] == "soft*"


def test_curves_lie_over_each_other(digits_model: str, worse: torch.nn.Module) -> None:
    for model, run in ((digits_model, "one"), (worse, "two")):
        evaluated(model, run, 40, "0.05,0.2")
    chart = section(compared("one", "two")[0], "curves").parts[0]
    assert chart.svg.count("<polyline") == 2  # type: ignore[union-attr]
    names = [name.rstrip("*") for name in chart.table.columns]  # type: ignore[union-attr]
    assert names == ["eps (linf)", "one", "two"]
    assert [row[0] for row in chart.table.rows] == ["0", "0.05", "0.2"]  # type: ignore[union-attr]


def fuzzed(model: object, run: str, recipe: str = "noise", eps: float = 0.4, cases: int = 200) -> assay.Found:
    return assay.fuzz(recipe, model, assay.load_data("digits/train[:40]"), run=run, eps=eps, cases=cases)  # type: ignore[arg-type]


def test_fuzzing_under_unlike_bounds_is_not_ranked(digits_model: str) -> None:
    fuzzed(digits_model, "small", eps=0.2)
    fuzzed(digits_model, "large", eps=0.4)
    page, told = compared("small", "large")
    assert told["groups"] == []
    assert "unlike bounds are not ranked" in page.verdict.text
    [differs] = told["differences"]
    assert any("eps 0.2" in line and "eps 0.4" in line for line in differs["differences"])


def test_fuzzing_under_the_same_bounds_is_ranked_by_seeds_broken(digits_model: str, worse: torch.nn.Module) -> None:
    one, two = fuzzed(digits_model, "one"), fuzzed(digits_model, "two")
    _, told = compared("one", "two")
    [group] = told["groups"]
    assert group["not_ranked"] is None
    assert {n: group["numbers"][n]["rank"] for n in ("one", "two")} == {"one": 1, "two": 1}
    assert group["numbers"]["one"]["seeds_broken"]["broken"] == one.broken == two.broken


def test_counts_of_unlike_budgets_have_no_rank(digits_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fuzzed(digits_model, "short", cases=40)
    fuzzed(digits_model, "long", cases=4000)
    real = summary

    def timed(run: store.Store) -> assay.Found:  # clocks of a test say nothing
        found = real(run)
        found.seconds = 1.0 if run.name == "short" else 9.0
        return found

    monkeypatch.setattr("assay.outputs.report.compare_fuzz.summary", timed)
    page, told = compared("short", "long")
    [group] = told["groups"]
    assert "unlike budgets" in group["not_ranked"]
    assert group["numbers"]["short"]["rank"] is None
    assert page.verdict.tone == "warning"


def test_runs_of_different_kinds_share_no_number(digits_model: str) -> None:
    evaluated(digits_model, "measured", 30)
    fuzzed(digits_model, "fuzzed", cases=40)
    page, told = compared("measured", "fuzzed")
    assert told["groups"] == []
    assert "different kinds (eval, fuzz), which share no number" in page.verdict.text


def test_the_same_run_twice_and_one_alone_are_refused(digits_model: str) -> None:
    evaluated(digits_model, "only", 20)
    with pytest.raises(UsageError, match="more than once"):
        assay.compare("only", store.runs_root() / "only")
    with pytest.raises(UsageError, match="two runs or more"):
        assay.compare("only")


def test_the_page_is_written_where_it_is_told(
    digits_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from assay.cli import run as assay_command

    for name in ("a", "b"):
        evaluated(digits_model, name, 20)
    made = assay.compare("a", "b")
    assert made.path.parent == store.runs_root() / "a" / "report"
    assert made.path.name.startswith("compare-")
    assert assay.compare("a", "b").path == made.path
    out = tmp_path / "both.html"
    assert assay_command(["report", "a", "b", "--out", str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(out)
    assert "not told apart" in out.read_text()
    assert assay_command(["report", "a", "b", "--out", str(out)]) == 0, "an earlier page of ours is written anew"
    assert assay_command(["report", "a", "--out", str(tmp_path / "page.txt")]) == 4
    assert store.read(store.runs_root() / "a").damage == []


def test_files_that_are_not_ours_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.html").write_text("my thesis")
    with pytest.raises(UsageError, match="not overwritten"):
        page_path(tmp_path / "mine.html")
    with pytest.raises(UsageError, match="no such folder"):
        page_path(tmp_path / "none" / "page.html")
    (tmp_path / "link.html").symlink_to(tmp_path / "mine.html")
    with pytest.raises(UsageError, match="symbolic link"):
        page_path(tmp_path / "link.html")
    assert page_path(tmp_path / "new.html") == tmp_path / "new.html"


def test_groups_and_ranks() -> None:
    assert grouped([1, 2, 3, 4], lambda a, b: ["parity"] if (a - b) % 2 else []) == [[1, 3], [2, 4]]
    better = {("a", "b"), ("a", "c"), ("b", "c")}
    assert ranks(["c", "a", "b"], lambda x, y: (x, y) in better) == {"c": 3, "a": 1, "b": 2}
