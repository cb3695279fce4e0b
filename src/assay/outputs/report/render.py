"""A page as HTML: one file that asks for nothing but pictures beside it, and runs no script but its own."""

import base64
import hashlib
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from assay.outputs.report.gallery import PAGE, Card, Gallery
from assay.outputs.report.parts import Cell, Page, Section, Table
from assay.outputs.report.texts import shown_text

STYLES, SCRIPTS = ("style.css", "charts.css"), ("app.js", "gallery.js")
LAST = ("again", "reproduce", "environment")  # sections that stand behind the gallery
_DRAWN = {"svg", "g", "line", "polyline", "polygon", "path", "rect", "circle", "text", "tspan", "title", "desc"}
_ACTIVE = re.compile(r"on|style$|href$|src$|.*:href$", re.IGNORECASE)  # attributes that run, load or are refused


def rendered(
    page: Page,
    gallery: Gallery | None = None,
    embedded: Mapping[str, bytes] | None = None,
    where: Mapping[str, str] | None = None,
) -> bytes:
    """The page, with the gallery where there is one.

    ``embedded`` are pictures that go into it, by their file; ``where`` are folders of pictures that have another name.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    here = files(__package__)

    def text(name: str) -> str:
        return here.joinpath(name).read_text(encoding="utf-8")

    whole = {f"{name}": "".join(text(file) for file in some) for name, some in (("style", STYLES), ("script", SCRIPTS))}
    known = embedded or {}
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        loader=FunctionLoader(text),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    before, behind = _around(page.sections)
    made = environment.get_template("page.html").render(
        page=page,
        before=before,
        behind=behind,
        gallery=gallery,
        first=() if gallery is None else gallery.cards[:PAGE],
        data="" if gallery is None else gallery.data(),
        sheets=_sheets(gallery, known),
        **whole,
        policy=_policy(**whole),
        kind=lambda part: type(part).__name__.lower(),
        source=lambda name: _source(_moved(name, where or {}), known),
        drawing=_drawing,
        hints=_hints,
        tiles=lambda card: _tiles(card, gallery),
        version=_version(),
    )
    return made.encode("utf-8", "backslashreplace")


def _version() -> str:
    try:
        return version("assay")
    except PackageNotFoundError:
        return ""


def _policy(style: str, script: str) -> str:
    """What the browser may do for this page: show pictures, use this style and run this script, nothing else."""
    hashes = {name: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for name, text in
              (("style", style), ("script", script))}  # fmt: skip
    return (
        f"default-src 'none'; img-src 'self' data: file:; style-src 'sha256-{hashes['style']}'; "
        f"script-src 'sha256-{hashes['script']}'; base-uri 'none'; form-action 'none'"
    )


def _around(sections: tuple[Section, ...]) -> tuple[list[Section], list[Section]]:
    """The sections before the gallery and those behind it; what has no parts is not shown."""
    shown = [section for section in sections if section.parts]
    return [s for s in shown if s.anchor not in LAST], [s for s in shown if s.anchor in LAST]


def _shown(value: object) -> object:
    return value if not isinstance(value, str) or hasattr(value, "__html__") else shown_text(value)


def _source(name: str, embedded: Mapping[str, bytes]) -> str:
    """Where a picture is: in the page, or in a file beside it."""
    content = embedded.get(name)
    return quote(name) if content is None else f"data:image/png;base64,{base64.b64encode(content).decode()}"


def _moved(name: str, where: Mapping[str, str]) -> str:
    for folder, other in where.items():
        if name.startswith(folder):
            return other + name.removeprefix(folder)
    return name


def _sheets(gallery: Gallery | None, embedded: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """The sheets that stand in the page: all that are embedded, else those of the first cards."""
    if gallery is None or gallery.layout is None:
        return []
    first = {card.pictures.sheet for card in gallery.cards[:PAGE] if card.pictures is not None}
    return [
        {
            "id": f"sheet-{number}",
            "source": _source(name, embedded),
            "width": gallery.layout.size(across, down)[0],
            "height": gallery.layout.size(across, down)[1],
        }
        for number, (name, across, down) in enumerate(gallery.sheets)
        if name in embedded or number in first
    ]


def _tiles(card: Card, gallery: Gallery | None) -> list[dict[str, str]]:
    """The pictures of a card: the part of its sheet that each is, and what it is called."""
    tiles = card.pictures
    if tiles is None or gallery is None or gallery.layout is None:
        return []
    across, layout, told = gallery.sheets[tiles.sheet][1], gallery.layout, []
    for place, name in enumerate(tiles.names, tiles.first):
        if name == "shrunk difference":
            continue  # the large view has room for it
        x, y = layout.at(place, across)
        factor = f" ×{tiles.factor}" if name == "difference" else ""
        box = f"{x} {y} {layout.width} {layout.height}"
        told.append({"name": name, "caption": f"{name}{factor}", "box": box, "sheet": f"sheet-{tiles.sheet}"})
    return told


def _hints(table: Table) -> list[tuple[str, str]]:
    """How the numbers of a table were measured: each way once, with what it holds for where there are several."""
    where: dict[str, list[str]] = {}
    for row in table.rows:
        name = row[0].text if isinstance(row[0], Cell) else row[0]
        for column, cell in zip(table.columns, row, strict=False):
            if isinstance(cell, Cell) and cell.hint:
                where.setdefault(cell.hint, []).append(f"{name}, {column}" if column else name)
    if len(where) == 1:
        return [("", hint) for hint in where]
    return [("; ".join(dict.fromkeys(places)), hint) for hint, places in where.items()]


def _drawing(svg: str) -> Any:
    """A drawing of ours, if it is one and nothing in it can run or load."""
    from markupsafe import Markup

    if "<!" in svg or "<?" in svg:  # comments and the like, of which XML and HTML see different ends
        raise ValueError("a drawing of a report may hold nothing but elements and text")
    for element in ElementTree.fromstring(svg).iter():
        tag = element.tag.rpartition("}")[2]
        active = [name for name in element.attrib if _ACTIVE.match(name.rpartition("}")[2])]
        if tag not in _DRAWN or active:
            raise ValueError(f"a drawing of a report may not hold <{tag} {' '.join(active)}>")
    return Markup(svg)  # checked just now, element by element
