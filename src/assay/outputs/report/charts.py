"""Drawings of the report: inline SVG made by hand, coloured by the page's style only, each with its numbers in words.

Nothing here holds a style: ``charts.css`` colours the classes, light and dark. Series differ in dashes and marks too,
not in colour alone. Text of users and files goes through ``text`` before it stands in a drawing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 26, 44
STYLES = 6  # classes s0 … s5 of series
NAME = 26  # characters of a name beside a bar; the whole name is in the table


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one line, with the ends of their intervals where they have some."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Bar:
    """A number beside others, with the ends of its interval where it has one."""

    value: float
    low: float | None = None
    high: float | None = None


def text(value: object, most: int | None = None) -> str:
    """Text for a drawing: what steers a page or is no XML is spelled out, and long names are cut."""
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in str(value))
    if most is not None and len(shown) > most:
        shown = f"{shown[: most - 1]}…"
    return escape(shown, quote=True)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from ``low`` to ``high``.

    >>> ticks(0, 1)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    if not high > low:
        return [low]
    raw = (high - low) / about
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * k for k in (1, 2, 5, 10) if size * k >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def number(value: float) -> str:
    """A number as short as it reads well."""
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e6 else f"{value:.3g}"


def share(value: float) -> str:
    """A share in percent."""
    return f"{100 * value:.3g} %"


class _Frame:
    """The axes of a drawing and where a point lies in it."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float]) -> None:
        self.x, self.y = _wide(*x), _wide(*y)

    def at(self, x: float, y: float) -> tuple[float, float]:
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    def axes(self, x_label: str, y_label: str, *, percent: bool, x_ticks: Sequence[float] = ()) -> list[str]:
        told = []
        for value in ticks(*self.y):
            _, y = self.at(self.x[0], value)
            told.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            label = share(value) if percent else number(value)
            told.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
        base = HEIGHT - BOTTOM
        for value in x_ticks or ticks(*self.x):
            x, _ = self.at(value, self.y[0])
            told.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{base}" y2="{base + 4}"/>')
            told.append(f'<text class="tick" x="{x:.1f}" y="{base + 17}" text-anchor="middle">{number(value)}</text>')
        told.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>')
        middle = (LEFT + WIDTH - RIGHT) / 2
        told.append(
            f'<text class="label" x="{middle:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{text(x_label)}</text>'
        )
        told.append(f'<text class="label" x="{LEFT}" y="{TOP - 12}" text-anchor="start">{text(y_label)}</text>')
        return told


def lines(
    title: str,
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    *,
    percent: bool = False,
    at_points: bool = False,
) -> str:
    """Lines over numbers, with a band where intervals are known; a share goes from 0 to 1.

    With ``at_points`` the numbers below are those of the points, as of the few eps of a curve, and points are marked.
    """
    xs = [x for one in series for x in one.x]
    ys = [y for one in series for y in (*one.y, *one.high)]
    frame = _Frame((min([0.0, *xs]), max([*xs, 0.0])), (0.0, 1.0 if percent else max([*ys, 0.0])))
    top = 24 if len(series) > 1 else 0
    parts = frame.axes(x_label, y_label, percent=percent, x_ticks=sorted(set(xs)) if at_points and len(xs) < 40 else ())
    for place, one in enumerate(series):
        parts += _line(frame, one, f"s{place % STYLES}", marked=at_points)
    return _svg(
        title, _says(series, percent=percent), [*_legend([one.name for one in series]), *_moved(parts, top)], top
    )


def _line(frame: _Frame, one: Series, style: str, *, marked: bool) -> list[str]:
    points = [frame.at(x, y) for x, y in zip(one.x, one.y, strict=True)]
    parts = []
    if one.low and one.high:
        upper = [frame.at(x, y) for x, y in zip(one.x, one.high, strict=True)]
        lower = [frame.at(x, y) for x, y in zip(one.x, one.low, strict=True)]
        parts.append(f'<polygon class="band {style}" points="{_points([*upper, *reversed(lower)])}"/>')
    parts.append(f'<polyline class="line {style}" points="{_points(points)}"/>')
    if marked or len(points) == 1:
        parts += [f'<circle class="mark {style}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in points]
    return parts


def bars(title: str, names: Sequence[str], series: Mapping[str, Sequence[Bar]], *, percent: bool = True) -> str:
    """Bars lying under each other, a group a name, with their intervals; a share goes from 0 to 1."""
    thick, gap, room = 14, 10, 176
    group = thick * len(series) + gap
    top = 24 if len(series) > 1 else 8
    height = top + group * len(names) + 30
    most = 1.0 if percent else max([b.high or b.value for line in series.values() for b in line] + [1e-9])

    def at(value: float) -> float:
        return room + (WIDTH - room - RIGHT - 40) * min(max(value / most, 0.0), 1.0)

    parts = _legend(list(series))
    for value in ticks(0.0, most):
        x, label = at(value), share(value) if percent else number(value)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{height - 24}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{height - 10}" text-anchor="middle">{label}</text>')
    for row, name in enumerate(names):
        y = top + row * group + gap / 2
        middle = y + thick * len(series) / 2 + 4
        parts.append(f'<text class="name" x="{room - 8}" y="{middle:.1f}" text-anchor="end">{text(name, NAME)}</text>')
        for place, line in enumerate(series.values()):
            parts += _bar(line[row], at, y + place * thick, thick - 2, f"s{place % STYLES}", percent=percent)
    said = "; ".join(
        f"{name}: " + ", ".join(f"{label} {_told(line[row], percent=percent)}" for label, line in series.items())
        for row, name in enumerate(names[:40])
    )
    return _svg(title, said, parts, 0, height)


def _bar(bar: Bar, at: Callable[[float], float], y: float, thick: float, style: str, *, percent: bool) -> list[str]:
    start, end = at(0.0), at(bar.value)
    parts = [f'<rect class="bar {style}" x="{start:.1f}" y="{y:.1f}" width="{end - start:.1f}" height="{thick}"/>']
    last = end
    if bar.low is not None and bar.high is not None:
        low, last, middle = at(bar.low), at(bar.high), y + thick / 2
        parts.append(f'<line class="spread" x1="{low:.1f}" x2="{last:.1f}" y1="{middle:.1f}" y2="{middle:.1f}"/>')
    label = share(bar.value) if percent else number(bar.value)
    parts.append(f'<text class="tick" x="{last + 5:.1f}" y="{y + thick - 2:.1f}">{label}</text>')
    return parts


def columns(title: str, edges: Sequence[float], counts: Sequence[int], x_label: str, y_label: str) -> str:
    """A histogram: how many between two neighbouring edges."""
    frame = _Frame((edges[0], edges[-1]), (0.0, float(max([*counts, 1]))))
    parts = frame.axes(x_label, y_label, percent=False)
    for low, high, count in zip(edges, edges[1:], counts, strict=False):
        (x, y), (end, base) = frame.at(low, count), frame.at(high, 0)
        width = max(end - x - 1, 0.5)
        parts.append(f'<rect class="bar s0" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{base - y:.1f}"/>')
    said = "; ".join(
        f"{number(low)} to {number(high)}: {count}" for low, high, count in zip(edges, edges[1:], counts, strict=False)
    )
    return _svg(title, said, parts, 0)


def matrix(title: str, names: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """How many of each class (down) were given which class (across); the darker the more, each row for itself."""
    longest = max([min(len(name), 16) for name in names], default=1)
    n, room, head = len(names), 20 + 8 * min(max(longest, 4), 16), 22 + 6 * longest
    side = max(14, min(40, 520 // max(n, 1)))
    width, height = room + side * n + 10, head + side * n + 26
    parts = [f'<text class="label" x="{room}" y="{height - 8}">across: given class; down: true class</text>']
    for place, name in enumerate(names):
        middle = head + place * side + side / 2 + 4
        parts.append(f'<text class="name" x="{room - 6}" y="{middle:.1f}" text-anchor="end">{text(name, 18)}</text>')
        x = room + place * side + side / 2 + 4
        turned = f'transform="rotate(-60 {x:.1f} {head - 6})"'
        parts.append(f'<text class="name" x="{x:.1f}" y="{head - 6}" {turned}>{text(name, 16)}</text>')
    for row, line in enumerate(counts):
        total = sum(line)
        for column, count in enumerate(line):
            x, y = room + column * side, head + row * side
            kind = "right" if row == column else "wrong"
            depth = 0.08 + 0.72 * count / total if count else 0.0
            parts.append(
                f'<rect class="cell {kind}" x="{x}" y="{y}" width="{side - 1}" height="{side - 1}" '
                f'fill-opacity="{depth:.2f}"/>'
            )
            if count and side >= 18:
                at = f'x="{x + side / 2:.1f}" y="{y + side / 2 + 4:.1f}"'
                parts.append(f'<text class="count" {at} text-anchor="middle">{_short(count)}</text>')
    said = "; ".join(
        f"{names[row]} given {names[column]}: {count}"
        for row, line in enumerate(counts)
        for column, count in enumerate(line)
        if count and row != column
    )
    return _svg(title, said, parts, 0, height, width)


def _wide(low: float, high: float) -> tuple[float, float]:
    return (low, high) if high > low else (low, low + 1.0)


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _legend(names: Sequence[str]) -> list[str]:
    if len(names) < 2:
        return []
    parts, x = [], float(LEFT)
    for place, name in enumerate(names):
        parts.append(f'<rect class="bar s{place % STYLES}" x="{x:.0f}" y="3" width="12" height="12"/>')
        parts.append(f'<text class="name" x="{x + 17:.0f}" y="13">{text(name, NAME)}</text>')
        x += 34 + 7 * min(len(name), NAME)
    return parts


def _moved(parts: list[str], down: int) -> list[str]:
    return [f'<g transform="translate(0 {down})">', *parts, "</g>"] if down else parts


def _says(series: Sequence[Series], *, percent: bool) -> str:
    """The first and last point of each line; all of them where there are few."""
    show = share if percent else number
    told = []
    for one in series:
        points = list(zip(one.x, one.y, strict=True))
        few = points if len(points) <= 12 else [points[0], points[-1]]
        told.append(f"{one.name}: " + ", ".join(f"{show(y)} at {number(x)}" for x, y in few))
    return "; ".join(told)


def _told(bar: Bar, *, percent: bool) -> str:
    show = share if percent else number
    spread = "" if bar.low is None or bar.high is None else f" ({show(bar.low)} to {show(bar.high)})"
    return f"{show(bar.value)}{spread}"


def _short(count: int) -> str:
    return str(count) if count < 1000 else f"{count / 1000:.0f}k"


def _svg(title: str, said: str, parts: list[str], more: int, height: int = HEIGHT, width: int = WIDTH) -> str:
    inner = "".join(parts)
    return (
        f'<svg class="chart" viewBox="0 0 {width} {height + more}" width="{width}" height="{height + more}" role="img" '
        f'aria-label="{text(title)}"><title>{text(title)}</title><desc>{text(said)}</desc>{inner}</svg>'
    )
