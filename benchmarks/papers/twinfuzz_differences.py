"""Differences between arms, in pairs of nets of one seed: who is ahead, level or behind."""

import math
from collections.abc import Sequence
from statistics import mean, stdev

from papers.rows import Row
from papers.tables import column, number, pick, table, won
from papers.twinfuzz_tables import NAMES, ORDER, Subject

# What counts as generalised robustness, each by itself: static and white box are never mixed.
GENERALISED = {
    "fooling_new": "static",
    "near_new": "white box, eps/3",
    "auto_near": "AutoAttack, eps/3",
    "white_new": "white box, eps",
    "auto": "AutoAttack, eps",
    "corruptions": "corruptions",
}
SHOWN = [key for key in GENERALISED if key != "auto"]  # under AutoAttack at eps all but a few stand at 0
OTHERS = tuple(name for name in ORDER if name not in ("TwinFuzz", "adversarial"))
ABLATIONS = ("FOL only", "entropy only", "no mining", "no filter", "true class", "agreed oracle", "mined seeds")
PAPERS = "paper's seeds"
PAPERS_OTHERS = (*ABLATIONS, "RobOT", "fine-tuning")
LEAST = 3  # pairs without which nothing is said of a spread
FLOOR = 0.05  # a comparison says nothing where both stand below
WORDS = ("ahead", "level", "behind")


def standing(found: Sequence[float]) -> str:
    """``ahead``, ``behind`` or ``level``: is the mean of the differences more than two standard errors from 0?

    >>> standing([0.02, 0.03, 0.025]), standing([0.02, -0.03, 0.01]), standing([0.02])
    ('ahead', 'level', '–')
    """
    if len(found) < LEAST:
        return "–"
    far = abs(mean(found)) > 2 * stdev(found) / math.sqrt(len(found))
    return ("ahead" if mean(found) > 0 else "behind") if far else "level"


def paired(found: Sequence[Row], first: str, second: str, key: str) -> list[float]:
    """Differences first − second of a number, seed by seed, in the rows of one subject."""
    told = [{r["protocol"]["seed"]: number(r, key) for r in pick(found, arm=arm)} for arm in (first, second)]
    both = [(told[0][seed], told[1].get(seed)) for seed in told[0]]
    return [mine - other for mine, other in both if mine is not None and other is not None]


def stands(found: Sequence[Row], first: str, second: str, key: str) -> str:
    """How an arm stands against another in one subject's rows; ``floor`` where both are below it."""
    word = standing(paired(found, first, second, key))
    means = [column(pick(found, arm=arm), key) for arm in (first, second)]
    low = all(values and mean(values) < FLOOR for values in means)
    return "floor" if low and word != "–" else word


def differences(found: list[Row]) -> str:
    """TwinFuzz less each other arm, and the paper's way less each of its ablations."""
    body = _lines(found, "TwinFuzz", OTHERS)
    if not body:
        return ""
    parts = ["Differences: standing, mean ± standard deviation over seeds (seeds above 0).\n"]
    titles = [GENERALISED[key] for key in SHOWN]
    parts.append(table(["TwinFuzz less", *titles], body))
    ablations = _lines(found, PAPERS, PAPERS_OTHERS)
    if ablations:
        parts.append("The same with the paper's seeds, against what leaves a part of it out, and the two rivals.\n")
        parts.append(table([f"{PAPERS} less", *titles], ablations))
    return "\n".join(parts)


def _lines(found: list[Row], first: str, others: Sequence[str]) -> list[list[str]]:
    lines = []
    for other in others:
        told = [paired(found, first, other, key) for key in SHOWN]
        if any(told):
            lines.append([NAMES.get(other, other), *map(written, told)])
    return lines


def written(some: Sequence[float]) -> str:
    """A difference with its standing, its spread and how many seeds are above 0."""
    if not some:
        return "–"
    spread = f" ± {stdev(some):.3f}" if len(some) > 1 else ""
    return f"{standing(some)} {mean(some):+.3f}{spread} ({won(some).replace(' of ', '/')})"


def counts(rows: Sequence[Row], subjects: Sequence[Subject], first: str, other: str) -> dict[str, int]:
    """How often an arm is ahead of another, level and behind, over subjects and columns; and how often both are low."""
    words = [stands(s.rows(rows, "arms"), first, other, key) for s in subjects for key in GENERALISED]
    return {word: words.count(word) for word in (*WORDS, "floor")}


def counted(rows: Sequence[Row], subjects: Sequence[Subject], first: str, others: Sequence[str]) -> str:
    """Where an arm stands against others, by column, counted over subjects."""
    body = []
    for other in others:
        cells = []
        for key in GENERALISED:
            words = [stands(s.rows(rows, "arms"), first, other, key) for s in subjects]
            told = [words.count(word) for word in WORDS]
            cells.append(" / ".join(map(str, told)) if sum(told) else "both low" if "floor" in words else "–")
        if any(c != "–" for c in cells):
            body.append([NAMES.get(other, other), *cells])
    return table([f"{first} against", *GENERALISED.values()], body) if body else ""
