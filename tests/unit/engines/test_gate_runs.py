"""The gate on runs: a saved evaluation and a hardening answer from what they hold, or say what to do."""

import json
import os
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import assay
from assay.core.errors import UsageError
from gates import BAD, DATA, NEW, OLD, prepare

OLD_RUNS = Path(__file__).parents[2] / "faults" / "old_runs"


@pytest.fixture(autouse=True)
def _files(_own_folder: None, tmp_path: Path) -> None:
    prepare(tmp_path)


def saved(model: str, name: str, **how: Any) -> None:
    assay.evaluate(model, DATA, **{"suite": "fast", "eps": 0.05, "save": name, **how})


def test_a_saved_evaluation_gives_the_same_rows_as_its_model() -> None:
    saved(NEW, "run", each=True)
    asked = "clean>=0.8, robust>=0.7, robust[*]>=0.5, pgd>=0.5, fgsm[dark]>=0.1"
    run, model = assay.check("run", require=asked), assay.check(NEW, DATA, require=asked, eps=0.05)
    assert [(r.clause, r.status, r.value, r.ci95, r.n) for r in run.rows] == [
        (r.clause, r.status, r.value, r.ci95, r.n) for r in model.rows
    ]
    assert run.failed == model.failed
    assert {f.id for f in run.failures} == {f.id for f in model.failures}
    assert run.run is not None
    assert Path(run.run).name == run.subject == "run"
    json.dumps(run.to_json(), allow_nan=False)


def test_two_saved_evaluations_are_paired_and_a_model_is_measured_like_the_run() -> None:
    saved(NEW, "new")
    saved(OLD, "old")
    asked = "clean_drop<=0.02, robust_drop<=0.3"
    direct = assay.check(NEW, DATA, require=asked, baseline=OLD, eps=0.05)
    expected = [(r.value, r.ci95, r.status) for r in direct.rows]
    for gate in (
        assay.check("new", require=asked, baseline="old"),
        assay.check("new", require=asked, baseline=OLD),
        assay.check(NEW, DATA, require=asked, baseline="old", eps=0.05),
    ):
        assert [(r.value, r.ci95, r.status) for r in gate.rows] == expected


@pytest.mark.parametrize("how", [{"eps": 0.06}, {"suite": "fgsm"}, {"seed": 1}])
def test_runs_measured_otherwise_are_not_compared(how: dict[str, Any]) -> None:
    saved(NEW, "new")
    saved(OLD, "old", **how)
    with pytest.raises(UsageError, match="measured otherwise"):
        assay.check("new", require="clean_drop<=0.1", baseline="old")


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"time": "1h", "require": "clean_drop<=1"}, "with --time only some inputs are done, run old has all"),
        ({"fuzz_regressions": "1h"}, "between two models; name the old one itself"),
    ],
)
def test_a_run_is_no_baseline_of_what_measures_otherwise(how: dict[str, Any], why: str) -> None:
    saved(OLD, "old")
    with pytest.raises(UsageError, match=why):
        assay.check(NEW, DATA, baseline="old", eps=0.05, **how)


def test_other_data_are_not_compared() -> None:
    saved(NEW, "new")
    assay.evaluate(OLD, "gate.npz[:100]", suite="fast", eps=0.05, save="old")
    with pytest.raises(UsageError, match="data_fingerprint"):
        assay.check("new", require="clean_drop<=0.1", baseline="old")


@pytest.mark.parametrize(
    ("require", "how", "why"),
    [
        ("pgd>=0.5", {}, "cascade.*--each"),
        ("apgd_ce>=0.5", {}, "assay check gate.py:net@new.safetensors --data gate.npz"),
        ("clean_drop<=0.5", {}, "--baseline OLD_MODEL"),
        ("robust>=0.5", {"eps": 0.1}, "--eps is for a model"),
        ("robust>=0.5", {"time": "1s"}, "--time is for a model"),
        ("robust>=0.5", {"regressions": ["run"]}, "--regressions is for a model"),
        ("", {"regressions": ["run"]}, "--regressions is for a model"),
    ],
)
def test_what_a_run_cannot_answer_is_refused_with_what_to_do(require: str, how: dict[str, Any], why: str) -> None:
    saved(NEW, "run")
    with pytest.raises(UsageError, match=why):
        assay.check("run", require=require, **how)


def test_the_first_attack_of_a_cascade_saw_every_input() -> None:
    saved(BAD, "run")
    assert assay.check("run", require="fgsm>=0.1").rows[0].value == 0.55


def test_the_first_attack_of_a_saved_cascade_is_the_first_that_ran_not_that_of_the_alphabet() -> None:
    """FGSM was tried on what PGD left: all but nothing of that breaks, which is no accuracy under FGSM."""
    saved(BAD, "run", suite="pgd,fgsm")
    gate = assay.check("run", require="pgd>=0.1")
    assert gate.rows[0].value == 0.55
    assert {failure.attack for failure in gate.failures} == {"pgd"}
    with pytest.raises(UsageError, match="it ran fgsm on what others left"):
        assay.check("run", require="fgsm>=0.1")
    resumed = assay.check(BAD, DATA, require="robust>=0.1", suite="pgd,fgsm", eps=0.05, save="run")
    assert {failure.attack for failure in resumed.failures} == {"pgd"}


def test_a_baseline_that_cannot_be_trusted_spoils_drops_alone() -> None:
    masked = "masked.py:net@old.safetensors"
    told = (
        Path("gate.py")
        .read_text()
        .replace("@ self.w", "@ self.w * 1e3")
        .replace("[-score, score]", "[-score.tanh(), score.tanh()]")
    )
    Path("masked.py").write_text(told)
    saved(NEW, "new")
    saved(masked, "old")
    asked = "clean>=0.5, robust>=0.5, clean_drop<=1, robust_drop<=1"
    for gate in (
        assay.check("new", require=asked, baseline="old"),
        assay.check("new", require=asked, baseline=masked),
        assay.check(NEW, DATA, require=asked, baseline="old", eps=0.05),
        assay.check(NEW, DATA, require=asked, baseline=masked, eps=0.05),
    ):
        assert [row.status for row in gate.rows] == ["met", "met", "met", "unreliable"]
        assert all(warning["message"].startswith("of the baseline: ") for warning in gate.warnings)


def test_no_run_no_data() -> None:
    with pytest.raises(UsageError, match="is no run; a model is checked on data"):
        assay.check("nobody", require="clean>=0.5")


def test_a_fuzzing_run_holds_no_accuracies() -> None:
    assay.fuzz("noise", NEW, DATA, run="found", cases=64)
    with pytest.raises(UsageError, match="holds no accuracies"):
        assay.check("found", require="robust>=0.5")
    with pytest.raises(UsageError, match="not a saved evaluation"):
        assay.check(NEW, DATA, require="clean_drop<=0.5", baseline="found")


def test_an_evaluation_that_has_not_ended_is_no_ground() -> None:
    saved(NEW, "half", batch=100, time=1e-9)
    with pytest.raises(UsageError, match="has not ended"):
        assay.check("half", require="robust>=0.5")
    saved(NEW, "half", batch=100)
    assert assay.check("half", require="robust>=0.5").met


@pytest.mark.parametrize("name", ["eval", "harden"])
def test_runs_of_older_versions_answer(name: str, tmp_path: Path) -> None:
    with ZipFile(OLD_RUNS / f"{name}.zip") as old:
        old.extractall(tmp_path / "old")
    gate = assay.check(str(tmp_path / "old" / "run"), require="clean>=0.1, robust>=0")
    assert [row.name for row in gate.rows] == ["clean", "robust"]
    assert gate.rows[0].value is not None
    assert gate.rows[0].n


def test_a_hardening_answers_from_its_test_part(tmp_path: Path) -> None:
    with ZipFile(OLD_RUNS / "harden.zip") as old:
        old.extractall(tmp_path / "old")
    run = str(tmp_path / "old" / "run")
    tested = json.loads((tmp_path / "old" / "run" / "state" / "final-001.json").read_text())
    gate = assay.check(run, require="clean>=0.1, robust>=0, clean_drop<=1, robust_drop<=1")
    clean, robust, drop, robust_drop = gate.rows
    assert clean.value == tested["after"]["clean"]["accuracy"]
    assert robust.value == pytest.approx(tested["after"]["worst"]["accuracy"])
    assert drop.value == pytest.approx(tested["before"]["clean"]["accuracy"] - tested["after"]["clean"]["accuracy"])
    assert drop.ci95 is not None
    assert drop.value is not None
    assert drop.ci95[0] < drop.value < drop.ci95[1]
    assert robust_drop.n == tested["after"]["clean"]["n"]
    with pytest.raises(UsageError, match="keeps no classes apart; measure the model itself: assay check"):
        assay.check(run, require="robust[*]>=0.1")
    with pytest.raises(UsageError, match="no number 'apgd_ce' was measured"):
        assay.check(run, require="apgd_ce>=0.1")
    with pytest.raises(UsageError, match="is a hardening: its baseline"):
        assay.check(run, require="clean>=0.1", baseline=OLD)


def test_a_damaged_run_is_no_ground() -> None:
    saved(NEW, "run")
    block = next(Path(os.environ["ASSAY_RUNS"], "run", "state").glob("block-*"))
    block.write_bytes(block.read_bytes()[:-8])
    with pytest.raises(UsageError, match=r"damaged|differs"):
        assay.check("run", require="robust>=0.1")
