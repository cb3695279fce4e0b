"""The tables of docs/arena.md are what the rows beside it say."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import doc_blocks

DOCS = doc_blocks.ROOT / "docs"


@pytest.fixture(scope="module")
def arena() -> ModuleType:
    """The program that writes the tables."""
    sys.path.insert(0, str(doc_blocks.ROOT))
    try:
        import tools.docs.arena as program
    finally:
        sys.path.remove(str(doc_blocks.ROOT))
    return program


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """The page and its rows, to be spoiled."""
    (tmp_path / "arena").mkdir()
    for path in (DOCS / "arena").glob("*.json"):
        (tmp_path / "arena" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "arena.md").write_bytes((DOCS / "arena.md").read_bytes())
    return tmp_path / "arena.md"


def test_a_number_that_the_rows_do_not_say_is_found(arena: ModuleType, page: Path) -> None:
    page.write_text(arena.written(page), encoding="utf-8")
    assert arena.stale(page) == []
    text = page.read_text("utf-8")
    line = next(line for line in text.split("\n") if line.startswith("| `plain`"))
    page.write_text(text.replace(line, re.sub(r"\d", "7", line)), encoding="utf-8")
    assert arena.stale(page) == ["arena.md"]


def test_a_table_is_of_its_rows(arena: ModuleType, page: Path) -> None:
    rows = page.parent / "arena/digits.json"
    told = json.loads(rows.read_text("utf-8"))
    told["rows"] = [row for row in told["rows"] if row["row"] != "plain"]
    rows.write_text(json.dumps(told), encoding="utf-8")
    made = arena.written(page).split("<!-- made from arena/digits.json -->")[1].split("<!-- end -->")[0]
    assert "| `plain`" not in made
    assert "`plain`" in made.split("Rows not run")[1]


def test_rows_that_no_table_shows_are_found(arena: ModuleType, page: Path) -> None:
    page.write_text(arena.written(page), encoding="utf-8")
    (page.parent / "arena/other.json").write_bytes((page.parent / "arena/digits.json").read_bytes())
    assert arena.stale(page) == ["arena/other.json"]
