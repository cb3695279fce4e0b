"""A report in one file: what fits into 10 MB, picked over kinds and classes, and what was left out told."""

from collections.abc import Mapping
from dataclasses import replace

import torch

from assay.core.store import Store
from assay.outputs.models import Models
from assay.outputs.report.gallery import Gallery, gallery_of, with_pictures
from assay.outputs.report.order import rows_of
from assay.outputs.report.parts import Page
from assay.outputs.report.pictures import Sheet, sheets
from assay.outputs.report.render import rendered
from assay.outputs.report.shown import Shown

LIMIT = 10_000_000  # bytes
CARDS = 16  # on a sheet: it goes in whole or not at all
MOST = 5_000  # failures that are tried: their words alone take some 2 MB


def single(
    run: Store, page: Page, failures: Shown | None, models: Models, pictures: Mapping[str, bytes], limit: int = LIMIT
) -> bytes:
    """The page with pictures inside, at most ``limit`` bytes as far as pictures and cards go."""
    bare = rendered(page, None, pictures)
    if failures is None:
        return bare
    rows = rows_of(failures.cases, MOST)
    count, made = len(rows), list[Sheet]()
    while True:
        gallery = gallery_of(run, failures, models, rows=rows[:count])
        if gallery.layout is not None:
            made = _fitting(failures, gallery, limit - len(bare), made)
            count = sum(len(sheet.cards) for sheet in made)
            gallery = _with(gallery_of(run, failures, models, rows=rows[:count]), made)
        names = {name: sheet.content for (name, _, _), sheet in zip(gallery.sheets, made, strict=True)}
        content = rendered(page, gallery, {**pictures, **names})
        if len(content) <= limit or not count:
            return content
        # The words of the cards take more than was guessed; a tenth fewer are tried.
        made = made[: len(made) * 9 // 10]
        count = sum(len(sheet.cards) for sheet in made) if gallery.layout is not None else count * 9 // 10


def _fitting(failures: Shown, gallery: Gallery, room: int, made: list[Sheet]) -> list[Sheet]:
    """The first sheets of the cards that fit with the words of their cards into so many bytes."""
    assert gallery.layout is not None  # vectors have none
    if made or not gallery.cards:
        return made
    words = len(gallery.data()) / len(gallery.cards)
    fit: list[Sheet] = []
    order = torch.tensor([card.found for card in gallery.cards])
    for sheet in sheets(failures, order, gallery.layout, CARDS):
        room -= len(sheet.content) * 4 // 3 + int(words * len(sheet.cards)) + 300
        if room < 0:
            break
        fit.append(sheet)
    return fit


def _with(gallery: Gallery, made: list[Sheet]) -> Gallery:
    places = tuple((f"sheet-{number}", sheet.across, sheet.down) for number, sheet in enumerate(made))
    return replace(gallery, cards=with_pictures(gallery.cards, made), sheets=places)
