"""The report: what it shows, and what it does not let through."""

import re
from pathlib import Path

import pytest

import assay
from assay.core import store


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


def test_a_run_without_failures_says_so(digits_model: str) -> None:
    found = assay.fuzz("noise", digits_model, assay.load_data("digits/train[:16]"), run="none", eps=0.001)
    assert found.failures == 0
    assert "No failure was found" in assay.report(found.run).read_text()
