"""Plain SVG figures: curves with bars of spread, and histograms, in panels side by side."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

COLOURS = ("#1b6ca8", "#c44e2b", "#2b8a57", "#8a5fa8", "#555555")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 330, 230, 46, 30, 40

Point = tuple[float, float, float]  # x, mean, spread


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes: lines by name, each a list of (x, mean, spread); ``steps`` leaves markers and bars out."""

    title: str
    x: str
    lines: Mapping[str, Sequence[Point]]
    steps: bool = False
    top: float = 1.0


def figure(panels: Sequence[Panel]) -> str:
    """The panels as one SVG text, a legend below."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    wide = WIDTH * len(panels)
    parts = [_panel(panel, i * WIDTH, names) for i, panel in enumerate(panels)]
    each = wide / max(1, len(names))
    for i, name in enumerate(names):
        at = 12 + i * each
        parts.append(f'<rect x="{at:.0f}" y="{HEIGHT + 6}" width="12" height="4" fill="{COLOURS[i % len(COLOURS)]}"/>')
        parts.append(f'<text x="{at + 17:.0f}" y="{HEIGHT + 12}">{escape(name)}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {HEIGHT + 22}" font-family="sans-serif" '
    return f'{head}font-size="11" fill="#222">\n<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(
        [*parts, "</svg>\n"]
    )


def _panel(panel: Panel, offset: float, names: Sequence[str]) -> str:
    xs = [x for line in panel.lines.values() for x, _, _ in line] or [0.0, 1.0]
    low, high = min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1
    right, bottom = WIDTH - 10, HEIGHT - BOTTOM

    def at(x: float, y: float) -> tuple[float, float]:
        across = offset + LEFT + (x - low) / (high - low) * (right - LEFT)
        return across, bottom - max(0.0, min(y / panel.top, 1.0)) * (bottom - TOP)

    parts = [f'<text x="{offset + (LEFT + right) / 2:.0f}" y="18" text-anchor="middle">{escape(panel.title)}</text>']
    for i in range(5):
        y = panel.top * i / 4
        _, down = at(low, y)
        parts.append(
            f'<path d="M{offset + LEFT} {down:.1f}H{offset + right}" stroke="#ddd"/>'
            f'<text x="{offset + LEFT - 5}" y="{down + 4:.1f}" text-anchor="end">{y:g}</text>'
        )
    ticks = sorted(set(xs)) if len(set(xs)) <= 6 else range(math.ceil(low), math.floor(high) + 1, 2)
    for x in ticks:
        across, _ = at(x, 0)
        parts.append(f'<text x="{across:.1f}" y="{bottom + 15}" text-anchor="middle">{x:.3g}</text>')
    middle = offset + (LEFT + right) / 2
    parts.append(f'<text x="{middle:.0f}" y="{bottom + 31}" text-anchor="middle">{escape(panel.x)}</text>')
    for name, line in panel.lines.items():
        colour = COLOURS[names.index(name) % len(COLOURS)]
        path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in (at(x, y) for x, y, _ in line))
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        for x, y, spread in () if panel.steps else line:
            (a, b), (_, up), (_, down) = at(x, y), at(x, y + spread), at(x, y - spread)
            parts.append(f'<path d="M{a:.1f} {up:.1f}V{down:.1f}" stroke="{colour}"/>')
            parts.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.6" fill="{colour}"/>')
    return "\n".join(parts)
