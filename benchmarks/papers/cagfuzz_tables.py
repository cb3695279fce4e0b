"""What the tables of CAGFuzz's page share: which rows may stand together, and differences paired by seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from scipy import stats

from papers.cagfuzz_subject import DATA, FAMILY
from papers.rows import Row, key
from papers.tables import number, pick

DATA_TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "digits": "digits"}
MODEL_TITLES = {
    "lenet1": "LeNet-1",
    "lenet4": "LeNet-4",
    "lenet5": "LeNet-5",
    "vgg16": "VGG-16",
    "vgg19": "VGG-19",
    "resnet20": "ResNet-20",
}


def usual(rows: Sequence[Row]) -> list[Row]:
    """Rows that may stand on one page: none of a trial, of a protocol the last, and where nets are compared those of
    the net that has most.
    """
    last = {key(r["protocol"]): r for r in rows if not r["protocol"].get("small")}
    groups: dict[str, dict[str, list[Row]]] = {}
    for row in last.values():
        p = row["protocol"]
        place = key({name: p.get(name) for name in ("experiment", "data", "model", "seed")})
        groups.setdefault(place, {}).setdefault(str(row["numbers"].get("fingerprint")), []).append(row)
    return [row for nets in groups.values() for row in max(nets.values(), key=len)]


def sets(rows: Sequence[Row]) -> list[str]:
    """Data sets that have rows, those of a full page first."""
    named = dict.fromkeys(r["protocol"]["data"] for r in rows)
    return [*(d for d in DATA if d in named), *(d for d in named if d not in DATA)]


def models(rows: Sequence[Row]) -> list[str]:
    known = [model for family in FAMILY.values() for model in family]
    named = {r["protocol"]["model"] for r in rows}
    return [m for m in known if m in named] + sorted(named - set(known))


def title(data: str) -> str:
    return DATA_TITLES.get(data, data)


def by_seed(rows: Sequence[Row], what: str, **match: object) -> dict[int, float]:
    """A number by seed."""
    told = {r["protocol"]["seed"]: number(r, what) for r in pick(rows, **match)}
    return {seed: value for seed, value in told.items() if value is not None}


def over_models(rows: Sequence[Row], what: str, **match: object) -> dict[int, float]:
    """The mean over models by seed, of the seeds that every model has."""
    each = [by_seed(rows, what, model=model, **match) for model in models(rows)]
    shared = set.intersection(*(set(e) for e in each)) if each else set()
    return {seed: mean(e[seed] for e in each) for seed in sorted(shared)}


def rate(rows: Sequence[Row], what: str, **match: object) -> dict[int, float]:
    """The share of the tests of all models that count as ``what``, by seed."""
    counts, tests = (over_models(rows, name, **match) for name in (what, "tests"))
    return {seed: count / tests[seed] for seed, count in counts.items() if tests.get(seed)}


@dataclass(frozen=True, slots=True)
class Gap:
    """Differences of two arms, seed by seed: their mean and its 95 % interval; no interval of a single seed."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return mean(self.values)

    @property
    def half(self) -> float:
        """Half the width of the interval: Student's, two-sided."""
        n = len(self.values)
        return math.inf if n < 2 else float(stats.t.ppf(0.975, n - 1)) * stdev(self.values) / math.sqrt(n)

    @property
    def word(self) -> str:
        """``more`` or ``less`` where 0 lies outside of the interval, else ``level``; – where there is none."""
        if len(self.values) < 2:
            return "–"
        if abs(self.mean) <= self.half:
            return "level"
        return "more" if self.mean > 0 else "less"

    def text(self, scale: float = 100, digits: int = 2) -> str:
        """The mean with its interval, as points of a hundred."""
        if not self.values:
            return "–"
        told = f"{scale * self.mean:+.{digits}f}"
        if len(self.values) < 2:
            return f"{told} (one seed)"
        low, high = (scale * (self.mean + sign * self.half) for sign in (-1, 1))
        return f"{told} [{low:+.{digits}f}, {high:+.{digits}f}]"


def gap(first: dict[int, float], second: dict[int, float]) -> Gap:
    """Of the seeds that both have.

    >>> gap({0: 0.5, 1: 0.6, 2: 0.9}, {0: 0.4, 1: 0.5}).text(digits=1), gap({0: 0.5}, {1: 0.4}).text()
    ('+10.0 [+10.0, +10.0]', '–')
    """
    return Gap(tuple(first[seed] - second[seed] for seed in sorted(first) if seed in second))


def one(values: dict[int, float], scale: float = 1, digits: int = 0) -> str:
    """The mean over seeds alone."""
    return shown(values, scale, digits).partition(" ")[0]


def listed(names: Sequence[str]) -> str:
    """Names in a sentence.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def shown(values: dict[int, float], scale: float = 100, digits: int = 1) -> str:
    """Mean ± standard deviation over seeds."""
    told = [scale * value for value in values.values()]
    if not told:
        return "–"
    return f"{mean(told):.{digits}f}" + (f" ± {stdev(told):.{digits}f}" if len(told) > 1 else "")
