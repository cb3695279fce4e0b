"""Runs of CAGFuzz: what is refused before anything is trained, what a run names, and what it is not continued with."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.core import store
from assay.core.errors import UsageError
from assay.engines.found import Found
from assay.engines.preparing import FITTED
from assay.engines.workshop import MADE
from assay.outputs.report.build import report
from assay.recipes.recipe import resolve

TINY = {"mutate.of.epochs": 1, "mutate.of.images": 40, "mutate.of.width": 4, "mutate.of.snapshots": 1}
QUICK = {"mutate.features": "reference(model=mlp, epochs=1, steps=0)", "mutate.candidates": 2, "mutate.top": 2}


def fuzzed(model: str, run: str, *, recipe: str = "cagfuzz", cases: int = 60, **changes: Any) -> Found:
    return assay.fuzz(recipe, model, "digits/train[:60]", run=run, cases=cases, unit=20, changes=TINY | QUICK | changes)


def test_parameters_of_a_stage_inside_a_stage_are_set_by_dots() -> None:
    text = resolve("cagfuzz-noise", {"mutate.of.epochs": 2, "mutate.of.split": "class_pair(3,8)"}, {}).mutate.text
    assert 'of="cyclegan(epochs=2, split=' in text
    assert "control=noise" in text  # whatever the generator, a control stays one
    with pytest.raises(UsageError, match="names no stage here"):
        resolve("cagfuzz", {"mutate.top.epochs": 2}, {})


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"mutate.features": "reference(layer=fc9)"}, "no layer is called 'fc9'"),
        ({"mutate.features": "efficientnet_lite(weights=gone.npz)"}, "gone.npz"),
        ({"mutate.features": "same.py:same"}, "the same features"),
        ({"mutate.of.split": "class_pair(3,88)"}, "no class '88'"),
        ({"mutate.of.epoks": 2}, "has no parameter 'epoks'"),
        ({"mutate.of": "cyclegan(aeg=gone.safetensors)"}, "assay aeg DATA"),
    ],
)
def test_what_cannot_work_is_refused_before_there_is_a_run(
    change: dict[str, Any], word: str, digits_model: str, tmp_path: Path
) -> None:
    Path("same.py").write_text("import torch\n\n\ndef same(bench):\n    return lambda x: torch.ones(len(x), 3)\n")
    made = {"mutate.of": "cyclegan"} if "mutate.of" in change else {}
    with pytest.raises(UsageError, match=word):
        assay.fuzz("cagfuzz", digits_model, "digits/train[:60]", run="early", changes=made | change)
    assert not (tmp_path / "runs").exists()
    assert not list((tmp_path / "cache").rglob("*.safetensors"))  # nothing was trained


def test_a_run_names_its_nets_and_keeps_them(digits_model: str, tmp_path: Path) -> None:
    found = fuzzed(digits_model, "named")
    kept = store.read(found.run)
    facts = next(kept.commits(FITTED)).meta["facts"]
    assert "CycleGAN of digits/train" in facts["generator"]
    assert "mlp trained 1 epochs on digits/train" in facts["features"]
    assert {line.meta["what"] for line in kept.commits(MADE)} == {"aeg", "reference"}
    page = report(found.run)
    text = page.read_text()
    assert "deep features" in text
    assert "its difference from the image" in text  # the sheet says what it shows
    assert (page.parent / "images" / "aeg.png").is_file()
    shutil.rmtree(tmp_path / "cache")
    before = {path: path.read_bytes() for path in (found.run / "models").iterdir()}
    assert fuzzed(digits_model, "named", cases=120).cases > found.cases  # goes on without the cache
    assert {path: path.read_bytes() for path in (found.run / "models").iterdir()} == before


def test_a_run_is_not_continued_with_another_generator(digits_model: str) -> None:
    for seed in (0, 1):
        making = {"epochs": 1, "images": 40, "width": 4, "snapshots": 1}
        assay.make_aeg("digits", f"{seed}.safetensors", params=making, seed=seed)
    shutil.copy("0.safetensors", "g.safetensors")
    changes = QUICK | {"mutate.of": "cyclegan(aeg=g.safetensors)"}
    how: dict[str, Any] = {"run": "swapped", "unit": 20, "changes": changes}
    assay.fuzz("cagfuzz", digits_model, "digits/train[:60]", cases=60, **how)
    shutil.copy("1.safetensors", "g.safetensors")
    with pytest.raises(UsageError, match="began with other nets"):
        assay.fuzz("cagfuzz", digits_model, "digits/train[:60]", cases=120, **how)


@pytest.mark.parametrize("recipe", ["cagfuzz-global", "cagfuzz-noise", "cagfuzz-fgsm"])
def test_the_other_recipes_run(recipe: str, digits_model: str) -> None:
    found = fuzzed(digits_model, "other", recipe=recipe)
    assert found.cases >= 60
    if found.failures:
        assert bool((found.load().info["line_cosine"] > 0.9).all())
