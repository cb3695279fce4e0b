"""What a page of the report is made of: data that says what is shown; how it looks is the template's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Tone = Literal["", "good", "bad", "warning"]


@dataclass(frozen=True, slots=True)
class Cell:
    """A number or a word of a table; ``hint`` is what a number was measured with (n, norm, eps, suite, seed, data)."""

    text: str
    hint: str = ""
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Note:
    """A paragraph; a warning has the anchor of the page that explains it in ``link``."""

    text: str
    tone: Tone = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and what they are."""

    rows: Mapping[str, str]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns; the first cell of a row is its name."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell | str, ...], ...]
    title: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing of ours as inline SVG, and the same numbers as a table for those who cannot see it."""

    svg: str
    title: str
    table: Table
    note: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """An image file beside the page."""

    file: str
    text: str


@dataclass(frozen=True, slots=True)
class Commands:
    """What to type, each with what it does."""

    rows: tuple[tuple[str, str], ...]  # (what it does, command)
    title: str = ""


Part = Note | Facts | Table | Chart | Picture | Commands


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page with a heading and an anchor; one without parts is not shown."""

    anchor: str
    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Everything but the gallery of failures, in reading order."""

    title: str
    verdict: Note
    sections: tuple[Section, ...]
    facts: Mapping[str, str] = field(default_factory=dict)  # under the title: run, model, data, recipe, seed
