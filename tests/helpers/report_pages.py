"""Reading the pages of reports: their elements, and the data that their script works on."""

import html
import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from assay.core import store
from assay.outputs.models import Models
from assay.outputs.report.gallery import Gallery, gallery_of
from assay.outputs.report.shown import shown

FIELDS = ("found", "id", "true", "predicted", "confidence", "size", "kind", "maker", "round", "line", "left", "note")


class Read(HTMLParser):
    """What stands in a page: elements, attributes, and the texts in each element."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.inside: dict[str, list[str]] = {}
        self._within: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self._within.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._within and self._within.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.inside.setdefault(self._within[-1] if self._within else "", []).append(data)


def data_of(page: Path | bytes) -> dict[str, Any]:
    """What the script of a page works on, each card with the names of its fields."""
    text = page.read_text() if isinstance(page, Path) else page.decode()
    told: dict[str, Any] = json.loads(re.findall(r'id="data">(.*?)</script>', text, re.DOTALL)[0])
    told["cards"] = [dict(zip((*FIELDS, "more", "tiles", "changes"), card, strict=True)) for card in told["cards"]]
    return told


def page_text(page: Path) -> str:
    """What a page says, without its marks, scripts and styles; cells of tables are apart by bars."""
    text = re.sub(r"<(script|style).*?</\1>", "", page.read_text(), flags=re.DOTALL)
    bare = html.unescape(re.sub(r"<[^>]+>", "", re.sub(r"</t[dh]>", " | ", text)))
    return " ".join(bare.split())


def gallery(run: Path) -> Gallery:
    """The gallery of a run's report."""
    folder = store.read(run)
    failures = shown(folder)
    assert failures is not None
    return gallery_of(folder, failures, Models("net"))
