"""The tables of docs/arena.md, made from the rows in docs/arena/."""

import re
from pathlib import Path

from assay.engines.arena import Arena
from assay.outputs.arena_tables import arena_markdown

PAGE = Path(__file__).parents[2] / "docs" / "arena.md"
_BLOCK = re.compile(r"(<!-- made from (arena/[\w.-]+\.json) -->\n).*?(<!-- end -->)", re.DOTALL)


def written(page: Path = PAGE) -> str:
    """The page with its tables made anew."""

    def made(block: re.Match[str]) -> str:
        return f"{block[1]}\n{arena_markdown(Arena.read(page.parent / block[2]))}\n{block[3]}"

    return _BLOCK.sub(made, page.read_text("utf-8"))


def stale(page: Path = PAGE) -> list[str]:
    """What of the page is not as its rows say: the page itself, and files of rows that it does not show."""
    text = page.read_text("utf-8")
    shown = {block[2] for block in _BLOCK.finditer(text)}
    there = {f"arena/{path.name}" for path in (page.parent / "arena").glob("*.json")}
    return [*([page.name] if written(page) != text else []), *sorted(there - shown)]
