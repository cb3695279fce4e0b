"""What comparisons of all kinds of runs share: groups of runs that may stand beside each other, and honest ranks."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Protocol, TypeVar

from assay.core.store import Store
from assay.outputs.report.parts import Cell, Note, Section, Table, Tone


class Named(Protocol):
    """A run as its kind compares it."""

    @property
    def name(self) -> str: ...


T = TypeVar("T")
N = TypeVar("N", bound=Named)


@dataclass(frozen=True, slots=True)
class Run:
    """A run under the name that tells it from the others."""

    name: str
    store: Store


@dataclass(slots=True)
class Compared:
    """What runs of one kind say beside each other."""

    verdict: str = ""
    tone: Tone = ""
    sections: list[Section] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)  # for JSON
    unlike: list[dict[str, Any]] = field(default_factory=list)  # pairs of runs and in what they differ


def grouped(items: Sequence[T], differ: Callable[[T, T], Sequence[str]]) -> list[list[T]]:
    """Groups whose members differ from the first of them in nothing that counts, in the order given."""
    groups: list[list[T]] = []
    for item in items:
        home = next((group for group in groups if not differ(group[0], item)), None)
        if home is None:
            groups.append([item])
        else:
            home.append(item)
    return groups


def ranks(names: Sequence[str], surely: Callable[[str, str], bool]) -> dict[str, int]:
    """The rank of each: 1 and how many are ``surely`` better than it.

    >>> ranks(["a", "b", "c"], lambda one, other: one == "a" and other == "c")
    {'a': 1, 'b': 1, 'c': 2}
    """
    return {name: 1 + sum(surely(other, name) for other in names if other != name) for name in names}


def pairwise(runs: int, error: float = 0.05) -> float:
    """The level of intervals that tell pairs apart: of many pairs one differs by chance (Bonferroni).

    >>> pairwise(2), round(pairwise(5), 3)
    (0.95, 0.995)
    """
    return 1 - error / max(math.comb(runs, 2), 1)


def side_by_side(names: Sequence[str], rows: Mapping[str, Sequence[Any]], note: str = "") -> Table:
    """Facts of several runs in columns; what is not the same in all is marked."""
    made: list[tuple[Cell | str, ...]] = []
    for what, values in rows.items():
        texts = ["–" if value is None else str(value) for value in values]
        tone: Tone = "" if len(set(texts)) == 1 else "warning"
        mark = "" if len(set(texts)) == 1 else " (differs)"
        made.append((f"{what}{mark}", *(Cell(text, tone=tone) for text in texts)))
    return Table(("protocol", *names), tuple(made), note=note)


def unlike(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """The conditions in which two runs differ, with what each has.

    >>> unlike({"norm": "linf", "eps": 0.1}, {"norm": "linf", "eps": 0.2, "seed": 1})
    ['eps 0.1 and 0.2', 'seed None and 1']
    """
    keys = dict.fromkeys((*mine, *theirs))
    return [f"{key} {mine.get(key)} and {theirs.get(key)}" for key in keys if mine.get(key) != theirs.get(key)]


def set_apart(
    told: Compared, items: Sequence[N], differ: Callable[[N, N], Sequence[str]], shown: Section, what: str
) -> list[list[N]]:
    """The groups that may be compared. ``shown`` tells their conditions; what keeps groups apart is added to it."""
    groups = grouped(items, differ)
    pairs = [(one[0].name, other[0].name, differ(one[0], other[0])) for one, other in combinations(groups, 2)]
    told.unlike = [{"runs": [one, other], "differences": list(why)} for one, other, why in pairs]
    refusals = (
        Note(f"Not ranked: {one} and {other} were {what} under unlike conditions: {'; '.join(why)}.", "warning")
        for one, other, why in pairs
    )
    told.sections.append(replace(shown, parts=(*shown.parts, *refusals)))
    return groups


def verdicts(groups: Sequence[list[N]], compare: Callable[[list[N], str], str]) -> list[str]:
    """A sentence of each group that has something to compare; ``compare`` is told what sets its sections apart."""
    several = len(groups) > 1
    return [compare(group, f"-{place}" if several else "") for place, group in enumerate(groups, 1) if len(group) > 1]


def listed(names: Sequence[str]) -> str:
    """``a, b and c``.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def points(value: float) -> str:
    """A difference of shares, in points, without a minus before zero."""
    return f"{round(100 * value, 1) + 0.0:+.1f}"
