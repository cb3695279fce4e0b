"""Rows picked, averaged and laid out as tables."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from papers.rows import Row


def pick(rows: Iterable[Row], **match: Any) -> list[Row]:
    """The rows whose protocol has these values."""
    return [r for r in rows if all(r["protocol"].get(k) == v for k, v in match.items())]


def cell(values: Sequence[float], digits: int = 3) -> str:
    """Mean ± standard deviation."""
    if not values:
        return "–"
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{spread}"


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def number(row: Row, name: str) -> float | None:
    """A number of a row; ``tests.adapt`` is one inside another."""
    told: Any = row["numbers"]
    for part in name.split("."):
        told = told.get(part) if isinstance(told, dict) else None
    return None if told is None else float(told)


def column(rows: Iterable[Row], name: str) -> list[float]:
    """A number of all rows that have it."""
    values = (number(row, name) for row in rows)
    return [value for value in values if value is not None]


def seeds_of(cells: Iterable[Sequence[Row]]) -> str:
    """How many seeds stand behind cells: one number, or the least and the most."""
    counts = sorted({len(rows) for rows in cells if rows})
    return "–".join(map(str, sorted({counts[0], counts[-1]}))) if counts else "0"


def pairs(rows: Iterable[Row], over: str, first: Any, second: Any, name: str) -> list[float]:
    """Differences first − second of a number, for all rows that are alike but in the field ``over``."""
    told: dict[str, dict[Any, float]] = {}
    for row in rows:
        value, p = number(row, name), row["protocol"]
        rest = str(sorted((k, str(v)) for k, v in p.items() if k not in (over, "recipe")))
        if value is not None:
            told.setdefault(rest, {})[p[over]] = value
    return [v[first] - v[second] for v in told.values() if first in v and second in v]


def won(differences: Sequence[float]) -> str:
    """How many of them are above 0."""
    return f"{sum(d > 0 for d in differences)} of {len(differences)}"


def lacked(lacking: Mapping[str, tuple[int, ...]], every: tuple[int, ...]) -> str:
    """Arms with the seeds they have not, those alike together.

    >>> lacked({"a": (1, 2), "b": (), "c": (1, 2), "d": (0, 1, 2)}, (0, 1, 2))
    'a, c: 1 and 2; d: all'
    """
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, seeds in lacking.items():
        if seeds:
            groups.setdefault(seeds, []).append(name)
    return "; ".join(
        f"{', '.join(names)}: {'all' if seeds == every else ' and '.join(map(str, seeds))}"
        for seeds, names in groups.items()
    )
