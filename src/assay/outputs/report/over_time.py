"""How a fuzzing run went: failures and coverage over its time, from ``plot.csv``."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from assay.core.plot import read_plot
from assay.outputs.report.charts import Series, lines, number, share
from assay.outputs.report.parts import Chart, Part, Table

T = TypeVar("T")

POINTS = 240  # of a line; a run of days has more seconds than a page has room
ROWS = 13  # of the table beside it


def over_time(folder: Path, *, every: bool) -> Iterator[Part]:
    """Charts of what was found and what was covered; nothing where the run keeps no such file."""
    rows = read_plot(folder)
    if not rows:
        return
    few = thinned(rows, POINTS)
    unit, word = (60.0, "minutes") if rows[-1]["seconds"] >= 300 else (1.0, "seconds")
    if rows[-1]["seconds"] >= 3 * 3600:
        unit, word = 3600.0, "hours"
    at = [0.0, *(row["seconds"] / unit for row in few)]
    named = {"failures": "cases kept" if every else "failures", "distinct": "distinct"}
    named |= {"broken": "seeds broken"}
    series = [Series(name, at, [0.0, *(float(row[key]) for row in few)]) for key, name in named.items()]
    title = f"{named['failures'].capitalize()} over time"
    note = "Distinct: by seed and wrong class."
    yield Chart(lines(title, series, word, "count"), title, _table(rows, unit, word), note)
    covered = [row for row in few if row["coverage"] is not None]
    if len(covered) > 1:
        line = Series(
            "covered", [row["seconds"] / unit for row in covered], [float(row["coverage"]) for row in covered]
        )
        title = "Coverage over time"
        table = tuple((number(x), share(y)) for x, y in thinned(list(zip(line.x, line.y, strict=True)), ROWS))
        note = (
            "Share of what the criterion of the recipe counts. It says what was reached, not whether the model holds."
        )
        yield Chart(lines(title, [line], word, "covered", percent=True), title, Table((word, "covered"), table), note)


def _table(rows: Sequence[dict[str, Any]], unit: float, word: str) -> Table:
    told = tuple(
        (number(row["seconds"] / unit), *(str(row[name]) for name in ("cases", "failures", "distinct", "broken")))
        for row in thinned(rows, ROWS)
    )
    heads = (word, "cases tried", "failures", "distinct", "seeds broken")
    return Table(heads, told, note=f"{len(told)} of {len(rows)} lines of plot.csv." if len(told) < len(rows) else "")


def thinned(rows: Sequence[T], most: int) -> list[T]:
    """At most so many, evenly, the first and the last among them.

    >>> thinned(range(10), 4)
    [0, 3, 6, 9]
    """
    if len(rows) <= most:
        return list(rows)
    return [rows[round(i * (len(rows) - 1) / (most - 1))] for i in range(most)]
