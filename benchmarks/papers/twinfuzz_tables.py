"""What the tables of TwinFuzz's page share: its subjects, the order of arms, means and correlations."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import correlation, mean

from papers.rows import Row, key
from papers.tables import pick
from papers.twinfuzz_arms import ARMS
from papers.twinfuzz_subject import MAIN_EPS, NETS

NAMES = {"adversarial": "adversarial training", "plain": "plain", "resistant": "resistant"}
ORDER = ("plain", "resistant", *ARMS)


@dataclass(frozen=True, slots=True)
class Subject:
    """One table's worth of rows: a data set, a net, an eps, and the seeds a full page has of them."""

    data: str
    net: str
    eps: float
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)

    @property
    def title(self) -> str:
        return f"{self.data}, {self.net}, eps {self.eps:.3g}"

    @property
    def command(self) -> str:
        eps = "" if self.eps == MAIN_EPS[self.data] else f" --eps {self.eps:g}"
        return f"--data {self.data} --nets {self.net}{eps} --seeds {' '.join(map(str, self.seeds))}"

    def rows(self, rows: Sequence[Row], experiment: str) -> list[Row]:
        return pick(rows, experiment=experiment, data=self.data, net=self.net, eps=round(self.eps, 6))


def subjects() -> list[Subject]:
    """What a full page has."""
    found = [Subject(data, net, MAIN_EPS[data]) for data in ("mnist", "fashion-mnist") for net in NETS[data]]
    found.append(Subject("fashion-mnist", "lenet5", 0.3, (0, 1, 2)))
    return found + [Subject("cifar10", net, MAIN_EPS["cifar10"]) for net in NETS["cifar10"]]


def usual(rows: Sequence[Row]) -> list[Row]:
    """Rows that may stand in one table: of each subject those of its commonest settings, one for an arm and seed."""
    groups: dict[str, dict[str, dict[tuple[str, int], Row]]] = {}
    for row in rows:
        p = row["protocol"]
        rest = {k: v for k, v in p.items() if k not in ("seed", "arm", "recipe")}
        subject = "{experiment} {data} {net} {eps}".format(**p)
        groups.setdefault(subject, {}).setdefault(key(rest), {})[p["arm"], p["seed"]] = row
    return [row for variants in groups.values() for row in max(variants.values(), key=len).values()]


def by_arm(found: Sequence[Row], names: Sequence[str] = ORDER) -> Iterator[tuple[str, list[Row]]]:
    """The arms that have rows, in the order of the page."""
    for name in names:
        some = pick(found, arm=name)
        if some:
            yield name, some


def average(values: Sequence[float], digits: int = 3) -> str:
    return f"{mean(values):.{digits}f}" if values else "–"


def ranked(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rank correlation, where there is one.

    >>> ranked([1, 2, 30], [5, 6, 7]), ranked([1, 2, 3], [7, 6, 5]), ranked([1, 1, 1], [1, 2, 3]), ranked([1], [2])
    (1.0, -1.0, None, None)
    """
    if len(set(first)) < 2 or len(set(second)) < 2:
        return None
    return round(correlation(_ranks(first), _ranks(second)), 9)


def _ranks(values: Sequence[float]) -> list[float]:
    """Places in order; those that are alike share the mean of theirs."""
    return [sum(v < mine for v in values) + sum(v == mine for v in values) / 2 for mine in values]
