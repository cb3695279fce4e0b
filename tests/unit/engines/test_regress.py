"""Old failures before the numbers: told apart, kept with a saved evaluation, and asked once."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import assay
from answers import planted, planted_target
from assay.core import store
from assay.core.cases import Cases
from assay.core.errors import BudgetSpent, UsageError
from assay.core.ids import case_ids
from assay.core.registry import names
from assay.engines import regress as module
from assay.engines.evaluate import evaluate
from assay.engines.evaluation import Evaluation
from assay.engines.found import load_failures
from assay.engines.old_failures import old_failures
from assay.outputs.report.build import report
from assay.outputs.status import readable, run_status
from assay.subjects.sources.load import load_target
from commands import tree
from report_pages import page_text

RUNS = Path("runs")
DATA = "digits/test[:30]"
SUITE: dict[str, Any] = {"suite": "fgsm", "eps": 0.1}


@pytest.fixture
def first(digits_model: str) -> Cases:
    """The failures of a run called first."""
    assay.fuzz("noise", digits_model, "digits/train[:40]", run="first", eps=0.4)
    return load_failures(store.read(RUNS / "first"))


def numbers(result: Evaluation) -> dict[str, Any]:
    """Everything but the old failures, clocks and places."""
    told = json.loads(json.dumps(result.to_json()))
    for outcome in told["attacks"].values():
        del outcome["seconds"]
    return {name: part for name, part in told.items() if name not in ("regress", "run")}


def old(result: Evaluation) -> dict[str, Any]:
    told: dict[str, Any] = result.to_json()["regress"]
    return told


def test_no_number_counts_them(first: Cases, digits_model: str) -> None:
    plain = evaluate(digits_model, DATA, **SUITE)
    assert "regress" not in plain.to_json()
    before = tree(RUNS / "first")
    result = evaluate(digits_model, DATA, **SUITE, regress=["first"])
    assert numbers(result) == numbers(plain)
    assert tree(RUNS / "first") == before
    told = old(result)
    assert (told["of"], told["still_failing"], told["fixed"]) == (len(first), len(first), 0)
    assert [row["id"] for row in told["runs"][0]["failures"]] == case_ids(first)
    assert told["runs"][0]["run"] == str(RUNS.resolve() / "first")
    with pytest.raises(UsageError, match="list of runs"):
        evaluate(digits_model, DATA, **SUITE, regress="first")


def test_several_runs_each_once_and_one_without_failures(first: Cases, digits_model: str) -> None:
    assay.fuzz("noise", digits_model, "digits/train[:5]", run="clean", eps=0.0001)
    assay.evaluate(digits_model, DATA, **SUITE, save="kept")
    told = old(evaluate(digits_model, DATA, **SUITE, regress=["first", "clean", "kept", "first"]))
    examples = old_failures(store.read(RUNS / "kept"))
    assert [run["of"] for run in told["runs"]] == [len(first), 0, len(examples)]
    assert told["of"] == len(first) + len(examples) == told["still_failing"]
    clean = evaluate(digits_model, DATA, **SUITE, regress=["clean"], save="none")
    assert old(clean)["of"] == 0
    assert old(evaluate(digits_model, DATA, **SUITE, regress=["clean"], save="none")) == old(clean)


def test_a_model_that_gets_them_right_has_fixed_them(first: Cases) -> None:
    y, was = first.y.tolist(), first.info["pred"].tolist()
    data = assay.Data("planted", Cases.of(first.x[:6], first.y[:6]), assay.load_data(DATA).spec)
    given = [[y[0]], [was[1]], [y[2], was[2]], *([c] for c in y[3:])]
    target = planted_target(first, given)
    told = old(evaluate(target, data, suite="square(queries=1)", eps=0.0001, regress=["first"], ignore=names("check")))
    assert [row["verdict"] for row in told["runs"][0]["failures"][:4]] == ["fixed", "still failing", "flaky", "fixed"]
    sizes = [size for size, _ in planted(target).batches]
    start, n = sizes.index(1), 3 * len(first)
    assert sizes[start : start + n] == [1] * n
    assert max(sizes[start + n :]) > 1, "the suite comes after them"


def test_what_a_saved_evaluation_keeps_is_neither_asked_again_nor_changed(first: Cases, digits_model: str) -> None:
    given: dict[str, Any] = {**SUITE, "regress": ["first"], "save": "kept"}
    result = evaluate(digits_model, DATA, **given)
    lines = list(store.read(RUNS / "kept").commits("regress"))
    assert [line.step for line in lines] == [1], "before every block"
    work = {name: part for name, part in tree(RUNS / "kept").items() if name.startswith(("state", "cases", "journal"))}
    assay.fuzz("noise", digits_model, "digits/train[:40]", run="more", eps=0.4)
    shutil.rmtree(RUNS / "first")  # nobody looks there again
    again = evaluate(digits_model, DATA, **given)
    assert again.to_json() == result.to_json()
    assert work.items() <= tree(RUNS / "kept").items()
    with pytest.raises(UsageError, match=r"regress\.runs"):
        evaluate(digits_model, DATA, **SUITE, regress=["more"], save="kept")
    with pytest.raises(UsageError, match=r"regress\.runs"):
        evaluate(digits_model, DATA, **SUITE, save="kept")


def test_status_and_report_tell_what_became_of_them(first: Cases, digits_model: str) -> None:
    assay.fuzz("noise", digits_model, "digits/train[:5]", run="clean", eps=0.0001)
    evaluate(digits_model, DATA, **SUITE, regress=["first", "clean"], save="kept")
    told = run_status(store.read(RUNS / "kept"))
    counts = {"of": len(first), "still_failing": len(first), "fixed": 0, "flaky": 0, "complete": True}
    none = {"of": 0, "still_failing": 0, "fixed": 0, "flaky": 0, "complete": True}
    paths = [str(RUNS.resolve() / name) for name in ("first", "clean")]
    assert told["regress"] == [{"run": paths[0], **counts}, {"run": paths[1], **none}]
    lines = [
        f"{len(first)} of runs/first: {len(first)} still failing, 0 fixed, 0 flaky",
        "0 of runs/clean: 0 still failing, 0 fixed, 0 flaky",
    ]
    assert readable(told)["old failures"] == "\n".join(lines)
    page = page_text(report("kept"))
    assert all(line in page for line in lines)
    assert "No failure was found" not in page
    evaluate(digits_model, DATA, **SUITE, save="plain")
    plain = run_status(store.read(RUNS / "plain"))
    assert plain["regress"] == []
    assert not {"regress", "old failures"} & readable(plain).keys()


def test_it_goes_on_where_it_was_stopped_though_the_run_has_grown(
    first: Cases, digits_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK", 5)
    whole = evaluate(digits_model, DATA, **SUITE, regress=["first"])

    def stop(numbers: Mapping[str, Any]) -> None:
        if numbers["done"] == 7:
            raise KeyboardInterrupt

    given: dict[str, Any] = {**SUITE, "regress": ["first"], "save": "kept"}
    with pytest.raises(KeyboardInterrupt):
        evaluate(digits_model, DATA, **given, progress=stop)
    assert len(list(store.read(RUNS / "kept").commits("regress"))) == 1
    _grow(first)
    told: list[int] = []
    result = evaluate(digits_model, DATA, **given, progress=lambda n: told.append(n["done"]))
    assert told[0] == 6, "the first block is not asked again"
    assert old(result) == old(whole)


def test_failures_that_are_others_now_are_refused(
    first: Cases, digits_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK", 5)

    def stop(numbers: Mapping[str, Any]) -> None:
        if numbers["done"] == 7:
            raise KeyboardInterrupt

    given: dict[str, Any] = {**SUITE, "regress": ["first"], "save": "kept"}
    with pytest.raises(KeyboardInterrupt):
        evaluate(digits_model, DATA, **given, progress=stop)
    shutil.rmtree(RUNS / "first")
    assay.fuzz("noise", digits_model, "digits/train[:40]", run="first", eps=0.4, seed=9)
    with pytest.raises(UsageError, match="no longer holds the failures"):
        evaluate(digits_model, DATA, **given)


def _grow(cases: Cases) -> None:
    """More failures at the end of the run."""
    from assay.core.shards import decode, encode

    with store.continued(RUNS / "first") as run:
        shard = next(decode(run.file(n)) for line in run.commits("fuzz") for n in line.files if "cases/" in n)
        shard["x"] = (shard["x"] + 1 / 64).clamp(0, 1)
        run.commit({"cases/step-900000.safetensors": encode(shard)}, kind="fuzz", unit=99, rows=[], counts={}, kept={})
    assert len(load_failures(store.read(RUNS / "first"))) > len(cases)


def test_the_runs_own_oracle_where_its_models_are_found_else_labels(
    digits_model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "other.safetensors"
    assay.train("lenet5", "digits", other, params={"epochs": 2, "batch": 32, "lr": 2e-3}, seed=5)
    pair: dict[str, Any] = {"siblings": [f"lenet5@{other}"], "changes": {"oracle": "disagree", "seeds": "agreed"}}
    assay.fuzz("noise", digits_model, "digits/train[:40]", run="pair", eps=0.4, **pair)
    told = old(evaluate(digits_model, DATA, **SUITE, regress=["pair"]))["runs"][0]
    assert told["oracle"] == "disagree"
    assert told["still_failing"] == told["of"] > 0
    other.unlink()
    told = old(evaluate(digits_model, DATA, **SUITE, regress=["pair"]))["runs"][0]
    assert told["oracle"] == "wrong_label"
    assert "judged by their labels" in caplog.text
    cases = load_failures(store.read(RUNS / "pair"))
    target = load_target(digits_model, device="cpu")
    assert told["fixed"] == int((target(cases.x).argmax(1) == cases.y).sum())


def test_what_cannot_be_is_refused_before_a_run_is_made(first: Cases, digits_model: str) -> None:
    with pytest.raises(UsageError, match="no run 'nothing'"):
        evaluate(digits_model, DATA, **SUITE, regress=["nothing"], save="kept")
    with pytest.raises(UsageError, match="kept in; name an earlier one"):
        evaluate(digits_model, DATA, **SUITE, regress=["kept"], save="kept")
    assert not (RUNS / "kept").exists()


def test_questions_of_a_black_box_count(first: Cases, digits_model: str) -> None:
    given: dict[str, Any] = {"suite": "square(queries=2)", "eps": 0.01, "regress": ["first"], "save": "kept"}
    few = 3 * len(first) + 5
    with pytest.raises(BudgetSpent):
        evaluate(digits_model, DATA, **given, queries=few, ask="labels=false")
    result = evaluate(digits_model, DATA, **given, queries=5000, ask="labels=false")
    assert result.queries is not None
    assert result.queries["first"] > len(first)
    assert result.queries["repeats"] == 2 * len(first), "asked in the first call, and not again in the second"
    assert old(result)["still_failing"] == len(first)
