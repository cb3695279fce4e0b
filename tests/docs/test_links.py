"""Links of the pages lead somewhere, and what the program prints as a place to read is there."""

import re
from pathlib import Path

import pytest

import doc_blocks
from assay.core.registry import names
from assay.engines.signs import PLACES

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """What headings of a page are called in links: as GitHub and the site both do."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    found = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        given = re.search(r"\{#([^}]+)\}", heading)
        plain = re.sub(r"[^\w\- ]", "", heading.split("{#")[0].strip().lower())
        found.add(given[1] if given else plain.replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", doc_blocks.every_page(), ids=lambda page: str(page.relative_to(doc_blocks.ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL)
    lost = []
    for link in _LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        there = (page.parent / path).resolve() if path else page
        known = there.exists() and (not anchor or there.suffix != ".md" or anchor in anchors(there))
        lost += [] if known else [link]
    assert lost == []


@pytest.mark.parametrize("name", names("check"))
def test_every_check_is_explained(name: str) -> None:
    assert name in anchors(doc_blocks.ROOT / "docs" / "checks.md")
    assert f"checks.md#{name}" in (doc_blocks.ROOT / "docs" / "explanation" / "warnings.md").read_text("utf-8")


@pytest.mark.parametrize("name", PLACES)
def test_every_sign_of_trouble_is_explained(name: str) -> None:
    path, _, anchor = PLACES[name].format(name).partition("#")
    assert anchor in anchors(doc_blocks.ROOT / path)
    assert name in (doc_blocks.ROOT / "docs" / "explanation" / "warnings.md").read_text("utf-8")


def test_every_verb_has_a_page_that_tells_how() -> None:
    from assay.cli import _command

    told = (doc_blocks.ROOT / "docs" / "how-to" / "index.md").read_text("utf-8")
    missing = [verb for verb in _command().commands if f"`assay {verb}`" not in told]
    assert missing == []
