"""The report: what it shows, and what it does not let through."""

import copy
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import assay
from assay.core import store
from assay.outputs.models import Models
from assay.outputs.seeding import labelled_by
from assay.outputs.status import readable, run_status
from assay.subjects.sources.load import load_target, module_of


def lead(page: Path) -> str:
    """The verdict line of a page."""
    return " ".join(page.read_text().partition('<p class="lead">')[2].partition("</p>")[0].split())


@pytest.fixture
def page(digits_model: str) -> Path:
    found = assay.fuzz("noise", digits_model, assay.load_data("digits/train[:150]"), run="shown", eps=0.4)
    return assay.report(found.run)


def test_pictures_lie_beside_the_page_and_exist(page: Path) -> None:
    sources = re.findall(r'<img src="([^"]+)"', page.read_text())
    assert len(sources) > 6
    for source in sources:
        assert (page.parent / source).read_bytes().startswith(b"\x89PNG"), source


def test_nothing_is_asked_of_the_network_and_scripts_are_forbidden(page: Path) -> None:
    text = page.read_text()
    assert "default-src 'none'" in text
    assert "<script" not in text
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', text)


def test_hostile_text_is_escaped(digits_model: str) -> None:
    data = assay.load_data("digits/train[:40]")
    hostile = assay.Data('<script>alert(1)</script>"><img src=x onerror=1>{{7*7}}', data.cases, data.spec)
    found = assay.fuzz("noise", digits_model, hostile, run="hostile", eps=0.4)
    text = assay.report(found.run).read_text()
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert "&lt;script&gt;" in text
    assert "{{7*7}}" in text, "text is data, not template"


def test_damage_is_named_and_the_good_part_shown(page: Path) -> None:
    run = page.parents[1]
    with (run / "journal.jsonl").open("ab") as journal:
        journal.write(b"torn li")
    text = assay.report(run).read_text()
    assert "Damaged: journal.jsonl" in text
    assert "Failures" in text
    assert store.read(run).damage


def test_the_target_of_one_model_is_named_and_its_seeds_are_told(page: Path, digits_model: str) -> None:
    run = store.read(page.parents[1])
    seeds = next(run.commits("seeds")).meta["seeds"]
    assert lead(page).startswith("The target fails on <strong>")
    assert f"Target <code>{digits_model}</code>, data <code>digits/train[:150]</code>." in lead(page)
    assert "Without labels" not in lead(page)
    text = page.read_text()
    assert f"<dt>seeds</dt><dd>{seeds}, {run.totals('fuzz')['seeds']} worked</dd>" in text
    assert "vulnerable" not in text
    assert "scores (median)" not in text, "noise has none"


@pytest.mark.parametrize(
    ("recipe", "others", "words"), [("noise", 0, "the model says"), ("deepxplore", 1, "the models say")]
)
def test_made_up_labels_are_told_in_the_verdict(digits_model: str, recipe: str, others: int, words: str) -> None:
    data = assay.load_data("digits/train[:60]")
    bare = replace(data, cases=assay.Cases.of(data.cases.x))
    torch.manual_seed(0)
    net = module_of(load_target(digits_model, data=data))
    for weight in (other := copy.deepcopy(net)).parameters():
        weight.data += 0.05 * torch.randn_like(weight)
    found = assay.fuzz(recipe, net, bare, run="bare", eps=0.4, siblings=[other][:others], cases=200)
    page = assay.report(found.run)
    count = found.seeding["seeds"]
    assert 0 < count <= 60
    assert f"{count} of {count} seeds have none, and what {words} of the clean input stands for it" in lead(page)
    told = readable(run_status(store.read(found.run)))["seeds without a label"]
    assert told.startswith(f"{count}: failures are by what {words} of the clean input")


@pytest.mark.parametrize(
    ("steps", "models", "words"),
    [
        (["correct"], Models("a"), "the model says"),
        (["agreed"], Models("a", None, ("b",)), "the models say"),
        (["drawn", "correct"], Models("a", None, ("b",)), "the model says"),
        (["attacked", "quality", "agreed"], Models("r", "v"), "the vulnerable model says"),
        (["correct"], Models("r", "v"), "the resistant model says"),
    ],
)
def test_whose_word_stands_for_a_label(steps: list[str], models: Models, words: str) -> None:
    assert labelled_by({"steps": dict.fromkeys(steps, 1)}, models) == words


def test_a_run_without_failures_says_so(digits_model: str) -> None:
    found = assay.fuzz("noise", digits_model, assay.load_data("digits/train[:16]"), run="none", eps=0.001)
    assert found.failures == 0
    assert "No failure was found" in assay.report(found.run).read_text()
