"""How the blocks of pages are read and run; that every page's do: tests/extras/test_docs_pages.py."""

from pathlib import Path

import pytest

import doc_readers


def test_a_block_that_fails_fails_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doc_readers, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("```bash\nassay status nowhere\n```\n")
    with pytest.raises(AssertionError, match=r"page.md:2: assay status nowhere\nexit 4"):
        doc_readers.Reader(tmp_path).read(page)
    page.write_text("```python\nraise ValueError('here')\n```\n")
    with pytest.raises(ValueError, match="here"):
        doc_readers.Reader(tmp_path).read(page)


def test_less_time_fewer_epochs_fewer_inputs() -> None:
    words = ["eval", "m", "--data", "digits/test", "--time", "10m", "--epochs", "20"]
    assert doc_readers.small(words) == ["eval", "m", "--data", "digits/test[:20]", "--time", "1s", "--epochs", "2"]
    assert doc_readers.small(["fuzz", "m", "--data", "digits/train", "--time", "0.5s"]) == [
        *("fuzz", "m", "--data", "digits/train", "--time", "0.5s")
    ]
