"""The gallery of a report: every failure as a card, as data for the page's script and as text for those without it."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.ids import case_ids
from assay.core.places import known_as
from assay.core.store import Store, runs_root
from assay.engines.lanes import NONFINITE
from assay.engines.seeding import LABELLED, seeding
from assay.outputs.models import Models
from assay.outputs.report.order import rows_of
from assay.outputs.report.pictures import GUTTER, Layout, Sheet, Tiles, layout_of
from assay.outputs.report.shown import Shown
from assay.outputs.report.texts import shown_text
from assay.outputs.seeding import labelled_by

MOST = 20_000  # cards of a page: a browser holds no more at ease
PAGE = 60  # cards at a time, unless the reader asks for more
CHANGES = 5  # entries told of an input that is no image
NORMS = {"linf": "L∞", "l2": "L2", "l1": "L1", "l0": "L0"}
_TOLD = {"pred", "seed_x", "seeded", "maker", "round", "kind_of_failure", "size", "linf", "l2", "ssim", "confidence"}
_TOLD |= {"seed", "kind", "success", "allowed", "attack", "static", "failed", "asked", LABELLED, "mined"}


@dataclass(frozen=True, slots=True)
class Card:
    """A failure on the page; classes, maker and kind are numbers into the lists of the gallery."""

    found: int  # its place in the run
    id: str
    true: int
    predicted: int
    confidence: float | None
    size: float | None
    kind: int
    maker: int
    round: int
    line: str  # how large the change is
    left: str  # what is left of it, where it was shrunk
    note: str  # what else is to be known
    more: tuple[str, ...]
    pictures: Tiles | None = None
    changes: tuple[tuple[str, str, str, str], ...] = ()  # of an input that is no image


@dataclass(frozen=True, slots=True)
class Gallery:
    """The cards in the order of the page, and what their numbers stand for."""

    cards: tuple[Card, ...]
    names: tuple[str, ...]  # of classes, then "unlabelled" and "no number"
    makers: tuple[str, ...]
    kinds: tuple[int, ...]  # how many failures of the run each kind has
    rounds: tuple[int, ...]
    more: tuple[str, ...]
    again: str
    total: int
    every: bool
    evaluation: bool
    norm: str
    layout: Layout | None
    notes: tuple[str, ...]
    missing: tuple[str, ...]
    sheets: tuple[tuple[str, int, int], ...] = ()  # where each is, how many tiles across and down

    @property
    def what(self) -> str:
        return "case" if self.every else "failure"

    def data(self) -> str:
        """What the script of the page works on, as JSON that can stand in a page."""
        told: dict[str, Any] = {
            "names": [shown_text(name) for name in self.names],
            "makers": [shown_text(name) for name in self.makers],
            "kinds": self.kinds,
            "more": [shown_text(name) for name in self.more],
            "again": shown_text(self.again),
            "total": self.total,
            "what": self.what,
            "every": self.every,
            "norm": self.norm,
            "page": PAGE,
            "tile": None if self.layout is None else [self.layout.width, self.layout.height],
            "gutter": GUTTER,
            "sheets": [(quote(name), across, down) for name, across, down in self.sheets],  # they are addresses
            "cards": [_packed(card) for card in self.cards],
        }
        text = json.dumps(told, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
        return text.replace("<", "\\u003c").replace("&", "\\u0026")


def _packed(card: Card) -> list[Any]:
    tiles = card.pictures
    where = None if tiles is None else [tiles.sheet, tiles.first, tiles.names, tiles.factor, tiles.factor_shrunk]
    facts = [card.found, card.id, card.true, card.predicted, card.confidence, card.size, card.kind, card.maker]
    texts = [shown_text(card.line), shown_text(card.left), shown_text(card.note), [shown_text(m) for m in card.more]]
    return [*facts, card.round, *texts, where, card.changes]


def gallery_of(run: Store, failures: Shown, models: Models, *, rows: Tensor | None = None) -> Gallery:
    """The cards of a run's failures, without their pictures; ``rows`` are those to show, else as many as a page holds,
    what is different first.
    """
    order = rows_of(failures.cases, MOST, failures.smaller) if rows is None else rows
    layout = layout_of(tuple(failures.cases.x.shape[1:]), len(order))
    counts = failures.cases.info["kind_of_failure"].bincount() if failures.kinds else torch.zeros(0)
    rounds = failures.cases.info["round"].unique().tolist()
    more = tuple(name for name in sorted(failures.cases.info) if name not in _TOLD and _plain(failures.cases, name))
    return Gallery(
        tuple(_cards(failures, order, models, _whose(run, models), more, layout)),
        (*failures.classes, "unlabelled", "no number"),
        failures.makers,
        tuple(int(count) for count in counts.tolist()),
        tuple(rounds),
        more,
        f"assay replay {_named(run)}",
        len(failures),
        failures.every,
        any(run.commits("eval")),
        NORMS[failures.norm],
        layout,
        tuple(_notes(failures, layout, len(order), _named(run))),
        failures.missing,
    )


def _named(run: Store) -> str:
    """The run as a word of a command: its name where that finds it, else its path."""
    own = (runs_root() / run.name).resolve() == run.path.resolve()
    return shlex.quote(run.name if own else known_as(run.path))


def with_pictures(cards: Sequence[Card], sheets: Sequence[Sheet]) -> tuple[Card, ...]:
    """The cards, each with its place on a sheet."""
    tiles = [tile for sheet in sheets for tile in sheet.cards]
    return tuple(replace(card, pictures=tile) for card, tile in zip(cards, tiles, strict=True))


def _notes(failures: Shown, layout: Layout | None, shown: int, run: str) -> list[str]:
    """What a reader has to know of the cards before trusting them."""
    what, total = ("cases" if failures.every else "failures"), len(failures)
    told = []
    if shown < total:
        told.append(
            f"{shown} of {total} {what} are on this page, in turn over the pairs of classes and the kinds; "
            f"assay export {run} --to images writes all {total}."
        )
    if layout is not None and layout.smaller:
        was = "×".join(map(str, layout.was))
        told.append(
            f"Pictures are shown at {layout.width}×{layout.height} instead of {was} pixels, so a small change may not "
            f"show; assay export {run} --to images writes them whole."
        )
    channels = failures.cases.x.shape[1] if failures.cases.x.dim() == 4 else 1
    if channels not in (1, 3):
        told.append(f"Inputs have {channels} channels; pictures show their mean.")
    unseeded = int((~failures.cases.info["seeded"]).sum())
    if unseeded:
        told.append(
            f"Of {unseeded} {what} the clean input is not in the run, which an older version made: "
            "neither it nor the change can be shown."
        )
    return told


def _plain(cases: Cases, name: str) -> bool:
    """Whether a column has one number a case."""
    return cases.info[name].dim() == 1


def _whose(run: Store, models: Models) -> str:
    """Whose word stands for a label that was not given."""
    told = seeding(run)
    return labelled_by(told, models) if told.get("steps") else "a model says"


def _cards(
    failures: Shown, order: Tensor, models: Models, whose: str, more: tuple[str, ...], layout: Layout | None
) -> list[Card]:
    cases = failures.cases[order]
    info, count = cases.info, len(failures.classes)
    number = info["kind"] == NONFINITE if "kind" in info else torch.zeros_like(cases.y, dtype=torch.bool)
    predicted = torch.where(number, count + 1, info["pred"])
    true = torch.where(cases.y < 0, count, cases.y)
    smaller = {} if failures.smaller is None else _lefts(failures.smaller)
    columns = {name: info[name].tolist() for name in ("kind_of_failure", "maker", "round", *more)}
    ids, lines, notes = case_ids(cases), _lines(cases, failures), _notes_of(cases, failures.classes, models, whose)
    sure, sizes = _rounded(info["confidence"], 4), _rounded(info["size"], 6)
    changes = [()] * len(cases) if layout is not None else _changes(cases)
    return [
        Card(
            row,
            ids[i],
            int(true[i]),
            int(predicted[i]),
            sure[i],
            sizes[i],
            columns["kind_of_failure"][i],
            columns["maker"][i],
            columns["round"][i],
            lines[i],
            smaller.get(row, ""),
            notes[i],
            tuple(f"{columns[name][i]:.4g}" for name in more),
            None,
            changes[i],
        )
        for i, row in enumerate(order.tolist())
    ]


def _rounded(column: Tensor, digits: int) -> list[float | None]:
    """Numbers as JSON knows them."""
    return [None if value != value else round(value, digits) for value in column.double().tolist()]


def _lines(cases: Cases, failures: Shown) -> list[str]:
    """How large each change is: in the run's norm, in others, in steps of an 8-bit image, and how alike it is."""
    low, high = failures.bounds
    image, norm = cases.x.dim() == 4, failures.norm
    columns = {name: cases.info[name].tolist() for name in ("size", "linf", "l2", "ssim")}
    lines = []
    for size, linf, l2, ssim in zip(*columns.values(), strict=True):
        if linf != linf:
            lines.append("size of the change not known")
            continue
        steps = f" = {255 * linf / (high - low):.3g}/255" if image else ""
        parts = {"linf": f"L∞ {linf:.3g}{steps}", "l2": f"L2 {l2:.3g}"}
        parts = {norm: parts.get(norm, f"{NORMS[norm]} {size:.4g}")} | parts
        likeness = f"SSIM {ssim:.2f}" if ssim == ssim and image else ""
        lines.append(" · ".join([*parts.values(), *filter(None, [likeness])]))
    return lines


def _lefts(smaller: Cases) -> dict[int, str]:
    """How much each shrunk case changes of its seed, by the row of its failure."""
    info = {name: smaller.info[name].tolist() for name in ("row", "changed", "changed_before", "linf", "l2")}
    sure = smaller.info["eight_bit"].tolist() if "eight_bit" in smaller.info else [False] * len(smaller)
    what = "pixels" if smaller.x.dim() == 4 else "entries"
    return {
        row: f"{now} of {was} changed {what}, L∞ {linf:.3g}, L2 {l2:.3g}{', fails as an 8-bit image' if image else ''}"
        for row, now, was, linf, l2, image in zip(*info.values(), sure, strict=True)
    }


def _notes_of(cases: Cases, classes: tuple[str, ...], models: Models, whose: str) -> list[str]:
    """What other models say, whose label it is, and how often it failed, for each case."""
    told: list[list[str]] = [[] for _ in range(len(cases))]
    if "others_pred" in cases.info:
        for notes, given in zip(told, cases.info["others_pred"].tolist(), strict=True):
            said = [classes[each] if 0 <= each < len(classes) else str(each) for each in given]
            vulnerable = said.pop() if said and models.vulnerable is not None else ""  # it comes behind siblings
            notes += [f"other models say {', '.join(said)}"] if said else []
            notes += [f"the vulnerable model says {vulnerable}"] if vulnerable else []
    if LABELLED in cases.info:
        for notes, given in zip(told, cases.info[LABELLED].tolist(), strict=True):
            notes += [] if given else [f"the label is what {whose} of the clean input"]
    if "failed" in cases.info and "asked" in cases.info:
        counts = zip(told, cases.info["failed"].tolist(), cases.info["asked"].tolist(), strict=True)
        for notes, failed, asked in counts:
            notes += [f"failed {failed} of {asked} times it was asked"]
    return ["; ".join(notes) for notes in told]


def _changes(cases: Cases) -> list[tuple[tuple[str, str, str, str], ...]]:
    """The entries that are changed most: which, the seed's value, the case's, and the change."""
    x, seed = cases.x.flatten(1), cases.info["seed_x"].flatten(1)
    top = (x - seed).abs().nan_to_num(0.0).topk(min(CHANGES, x.shape[1]), 1).indices
    told = zip(top.tolist(), seed.gather(1, top).tolist(), x.gather(1, top).tolist(), strict=True)
    return [
        tuple((str(i), f"{a:.4g}", f"{b:.4g}", f"{b - a:+.4g}") for i, a, b in zip(*row, strict=True) if a != b)
        for row in told
    ]
