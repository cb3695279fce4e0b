"""The reference is what the code says: current, whole, and true in what it counts."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import doc_blocks
from assay.core.entries import FOLDERS
from assay.core.registry import ENGINE_ARGUMENTS, entries, lookup

WITH_FORMULA = ("attack", "score", "criterion", "selector", "mutator")


@pytest.fixture(scope="module")
def docs() -> ModuleType:
    """The program that writes the reference."""
    sys.path.insert(0, str(doc_blocks.ROOT))
    try:
        import tools.docs.__main__ as program
    finally:
        sys.path.remove(str(doc_blocks.ROOT))
    return program


def test_the_reference_is_current() -> None:
    """In a process of its own: other tests register stages in this one."""
    asked = [sys.executable, "-m", "tools.docs", "--check"]
    done = subprocess.run(asked, cwd=doc_blocks.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_old_pages_and_old_words_are_found(docs: ModuleType, tmp_path: Path) -> None:
    made = docs.pages(count=False)
    for name, text in made.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "attacks.md").write_text(made["attacks.md"].replace("*Passes counted*: no", "*Passes counted*: 21"))
    (tmp_path / "scores.md").write_text(made["scores.md"].replace("largest", "smallest"))
    (tmp_path / "gone.md").write_text("")
    assert docs.stale(tmp_path) == ["gone.md", "scores.md"]  # counts may differ from machine to machine


def test_every_parameter_has_a_meaning_and_every_meaning_a_parameter(docs: ModuleType) -> None:
    used = set()
    for kind in FOLDERS:
        for entry in (e for e in entries(kind) if e.module.startswith("assay.")):
            for parameter in entry.parameters:
                if parameter.name not in ENGINE_ARGUMENTS:
                    assert docs.stages.meaning(kind, entry.name, parameter.name)
                    own = parameter.name in docs.stages.MEANINGS.get(f"{kind}/{entry.name}", {})
                    used.add((f"{kind}/{entry.name}" if own else kind, parameter.name))
    told = {(key, name) for key, names in docs.stages.MEANINGS.items() for name in names}
    assert told - used == set()


@pytest.mark.parametrize("kind", WITH_FORMULA)
def test_every_stage_that_computes_something_says_what(kind: str, docs: ModuleType) -> None:
    ours = [entry for entry in entries(kind) if entry.module.startswith("assay.")]
    without = [e.name for e in ours if "Formula:" not in (lookup(kind, e.name)[1].__doc__ or "")]
    assert without == []


def test_every_entry_stands_on_its_page(docs: ModuleType) -> None:
    made = docs.pages(count=False)
    for kind, (title, _) in docs.stages.PAGES.items():
        page = made[title.lower().replace(" ", "-") + ".md"]
        for entry in (e for e in entries(kind) if e.module.startswith("assay.")):
            assert f"\n## {entry.name}\n" in page, f"{kind} {entry.name}"
    assert set(docs.stages.PAGES) == set(FOLDERS)


def test_passes_are_counted(docs: ModuleType) -> None:
    costs = docs.stages.costs
    far = {name: costs.of_attack(name, costs.FAR) for name in ("fgsm", "pgd", "apgd_ce", "square", "corrupt")}
    counted = {name: (passes.answers, passes.gradients) for name, passes in far.items()}
    assert counted == {
        "fgsm": (1, 1),
        "pgd": (40, 40),
        "apgd_ce": (101, 101),
        "square": (costs.QUERIES, 0),
        "corrupt": (0, 0),
    }
    assert costs.of_attack("pgd", costs.NEAR).answers < 40  # it falls, and a row that is done costs nothing more
    assert str(costs.of_stage("score", "mc_dropout")) == "200 forward passes"
    assert str(costs.of_stage("score", "fol")) == "1 forward pass and 1 gradient"


def test_deviations_are_those_of_the_source(docs: ModuleType) -> None:
    made = docs.pages(count=False)
    for page, words in (
        ("attacks.md", "Paper: ends at the overshot point"),  # in the function
        ("attacks.md", "Paper: step sizes change by a factor"),  # in the docstring of a helper
        ("recipes.md", "Paper: nothing is said of the distance"),  # above the data
    ):
        assert words in made[page]
    square = made["attacks.md"].split("\n## square\n")[1]
    boundary = made["attacks.md"].split("\n## boundary\n")[1].split("\n## ")[0]
    assert "a proposal may be the point itself" in square
    assert "a proposal may be the point itself" not in boundary
