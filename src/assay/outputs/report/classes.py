"""Which classes suffer: accuracy of each, and which class is taken for which."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from assay.outputs.report.charts import Bar, bars, matrix
from assay.outputs.report.parts import Cell, Chart, Part, Table

DRAWN = 24  # classes in a drawing; the tables have all of them, or say how many they leave out
LISTED = 200  # rows of a table


def per_class_chart(per_class: Mapping[str, Mapping[str, Any]], hint: str) -> Chart:
    """Clean and worst-case accuracy of each class, the worst ones first where not all can be drawn."""
    weakest = sorted(per_class, key=lambda name: float(per_class[name]["worst"]["accuracy"]))
    drawn = [name for name in per_class if name in set(weakest[:DRAWN])]
    series = {
        word: [Bar(told["accuracy"], *told["ci95"]) for told in (per_class[name][key] for name in drawn)]
        for word, key in (("clean", "clean"), ("worst case", "worst"))
    }
    listed = list(per_class) if len(per_class) <= LISTED else weakest[:LISTED]
    rows: list[tuple[Cell | str, ...]] = [
        (name, str(per_class[name]["n"]), *(accuracy_cell(per_class[name][key], hint) for key in ("clean", "worst")))
        for name in listed
    ]
    table = Table(
        ("class", "n", "clean", "worst case"), tuple(rows), note=left_out(len(listed), len(per_class), "classes")
    )
    note = "Accuracy of each class; lines are 95 % Wilson intervals: those of classes with few inputs are wide. "
    note += left_out(len(drawn), len(per_class), "classes, those with the lowest worst case")
    return Chart(bars("Accuracy of each class", drawn, series), "Accuracy of each class", table, note.strip())


def failures_chart(true: Tensor, classes: Sequence[str]) -> Chart:
    """How many failures each true class has."""
    labels, counts = true.unique(return_counts=True)
    order = counts.argsort(descending=True, stable=True)
    found = {named(classes, int(labels[i])): int(counts[i]) for i in order.tolist()}
    drawn = list(found)[:DRAWN]
    svg = bars("Failures by true class", drawn, {"failures": [Bar(found[name]) for name in drawn]}, percent=False)
    listed = list(found)[:LISTED]
    rows = tuple((name, str(found[name])) for name in listed)
    table = Table(("true class", "failures"), rows, note=left_out(len(listed), len(found), "classes"))
    note = "How many there are depends on how long each seed was worked on: counts are not rates."
    return Chart(svg, "Failures by true class", table, note)


def confusion(pairs: Tensor, classes: Sequence[str], title: str, note: str) -> list[Part]:
    """Which class is taken for which, (M, 2) true and given: a picture, and the pairs that differ as a table."""
    if not len(pairs):
        return []
    wrong = pairs[pairs[:, 0] != pairs[:, 1]]
    if not len(wrong):
        return []
    some = _most_involved(wrong)
    names = [named(classes, label) for label in some.tolist()]
    place = {label: i for i, label in enumerate(some.tolist())}
    counts = [[0] * len(names) for _ in names]
    unique, times = pairs.unique(dim=0, return_counts=True)
    for (true, given), count in zip(unique.tolist(), times.tolist(), strict=True):
        if true in place and given in place:
            counts[place[true]][place[given]] = count
    rest = left_out(len(some), len(wrong.unique()), "classes, those confused most often")
    return [Chart(matrix(title, names, counts), title, _pairs_table(wrong, classes), f"{note} {rest}".strip())]


def _most_involved(wrong: Tensor) -> Tensor:
    """The classes that are confused most often, in their own order."""
    labels, counts = wrong.flatten().unique(return_counts=True)
    most: Tensor = labels[counts.argsort(descending=True, stable=True)[:DRAWN]].sort().values
    return most


def _pairs_table(wrong: Tensor, classes: Sequence[str]) -> Table:
    unique, times = wrong.unique(dim=0, return_counts=True)
    order = times.argsort(descending=True, stable=True)
    rows = tuple(
        (named(classes, int(unique[i, 0])), named(classes, int(unique[i, 1])), str(int(times[i])))
        for i in order[:LISTED].tolist()
    )
    return Table(("true class", "given class", "how often"), rows, note=left_out(len(rows), len(unique), "pairs"))


def named(classes: Sequence[str], label: int) -> str:
    """The name of a class; one without a label, or with none of the known ones, is told as what it is."""
    if label < 0:
        return "unlabelled"
    return classes[label] if label < len(classes) else str(label)


def left_out(shown: int, of: int, what: str) -> str:
    """Say how many are shown where not all are."""
    return f"Shown: {shown} of {of} {what}." if shown < of else ""


def accuracy_cell(told: Mapping[str, Any], hint: str = "") -> Cell:
    """A share with its interval; how it was measured is in the hint."""
    low, high = told["ci95"]
    shown = f"{100 * told['accuracy']:.1f} % ({100 * low:.1f}–{100 * high:.1f})"
    return Cell(shown, "; ".join(filter(None, (f"n={told['n']}", "95 % Wilson interval", hint))))


def histogram(values: Tensor, bins: int = 24) -> tuple[list[float], list[int]]:
    """Edges and counts of finite values."""
    found = values[values.isfinite()].double()
    low, high = float(found.min()), float(found.max())
    low = 0.0 if 0 <= low < high / 2 else low  # how small the smallest are is seen from zero
    if high - low < 1e-9 * max(abs(high), 1e-9):  # all the same: one column with a little room
        room = max(abs(high), 1e-6) * 0.05
        low, high, bins = low - room, high + room, 3
    counts = torch.histc(found, bins=bins, min=low, max=high).int().tolist()
    step = (high - low) / bins
    return [low + i * step for i in range(bins + 1)], counts
