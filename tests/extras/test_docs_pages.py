"""Every code block of the documentation runs, in order, as a reader would type it."""

from pathlib import Path

import pytest

import doc_blocks
import doc_readers
from doc_fixtures import furnished, reader

__all__ = ["furnished", "reader"]


@pytest.mark.parametrize("page", doc_blocks.pages(), ids=lambda page: str(page.relative_to(doc_blocks.ROOT)))
def test_page(page: Path, reader: doc_readers.Reader) -> None:
    reader.read(page)
    for told in reader.skipped:
        print(told)


def test_not_too_much_is_left_out() -> None:
    """Blocks that are not run say why, and are few."""
    found = [block for page in doc_blocks.pages() for block in doc_blocks.blocks(page) if block.language != "text"]
    left_out = [block for block in found if block.why]
    assert len(left_out) <= len(found) / 8, "\n".join(f"{block.place}: {block.why}" for block in left_out)
