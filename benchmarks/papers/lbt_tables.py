"""What the tables of LBT's page share: which rows may stand together, and who is outside whose seed spread."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from papers.lbt_measure import a12
from papers.lbt_methods import METHODS
from papers.lbt_subject import DATA, NETS, POOLS
from papers.rows import Row, key
from papers.tables import column, number, pick

SEEDS = (0, 1, 2, 3, 4)
DATA_TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "digits": "digits"}
POOL_TITLES = {
    "fgsm": "FGSM",
    "jsma": "JSMA",
    "fgsm-drawn": "FGSM, sizes drawn",
    "jsma-transfer": "JSMA on the other model",
}
PAPERS = ("fgsm", "jsma")  # pools that the paper has too
LEAST = 3  # seeds without which nothing is said of a spread
WORDS = ("ahead", "level", "behind")
FULL = 0.9  # a share of faults with which there is little left to find


@dataclass(frozen=True, slots=True)
class Place:
    """A pool of a model under test."""

    data: str
    mut: str
    attack: str

    @property
    def title(self) -> str:
        return f"{self.mut}, {POOL_TITLES[self.attack]}"

    @property
    def whole(self) -> str:
        return f"{DATA_TITLES[self.data]}, {self.title}"

    def rows(self, rows: Sequence[Row]) -> list[Row]:
        return pick(rows, data=self.data, mut=self.mut, attack=self.attack)


def places() -> list[Place]:
    """The pools of a full page."""
    return [Place(data, mut, attack) for data in DATA for mut in NETS for attack in POOLS]


def there(rows: Sequence[Row], data: str = "") -> Iterator[tuple[Place, list[Row]]]:
    """The pools that have rows, of one data set or of all."""
    known = places()
    named = dict.fromkeys(Place(*(r["protocol"][k] for k in ("data", "mut", "attack"))) for r in rows)
    for place in (*(p for p in known if p in named), *(p for p in named if p not in known)):
        if data in ("", place.data):
            yield place, place.rows(rows)


def usual(rows: Sequence[Row]) -> list[Row]:
    """Rows that may stand on one page: none of a trial, of each model those of the net and settings that have most, and
    of a protocol the last.
    """
    groups: dict[str, dict[str, dict[str, Row]]] = {}
    for row in rows:
        p = row["protocol"]
        if p.get("small"):
            continue
        alike = key({"net": row["numbers"]["fingerprint"], "base": p["base"], "scale": p["scale"]})
        groups.setdefault(f"{p['data']} {p['mut']}", {}).setdefault(alike, {})[key(p)] = row
    return [row for variants in groups.values() for row in max(variants.values(), key=len).values()]


def fault_share(own: Sequence[Row]) -> float | None:
    """m/n of a pool."""
    faults, n = column(own, "faults"), column(own, "n")
    return faults[-1] / n[-1] if faults and n else None


def by_seed(own: Sequence[Row], name: str, what: str) -> dict[int, float]:
    """A number of a method by seed, in the rows of one pool."""
    told = {r["protocol"]["seed"]: number(r, what) for r in pick(own, experiment="orders", method=name)}
    return {seed: value for seed, value in told.items() if value is not None}


def pairs(own: Sequence[Row], first: str, other: str, what: str) -> dict[int, tuple[float, float]]:
    """Numbers of two methods side by side, by seed; a method that draws nothing stands beside every seed."""
    mine, theirs = by_seed(own, first, what), by_seed(own, other, what)
    if theirs and not METHODS[other].seeded:
        theirs = dict.fromkeys(mine, next(iter(theirs.values())))
    return {seed: (mine[seed], theirs[seed]) for seed in sorted(mine) if seed in theirs}


def alike(own: Sequence[Row], first: str, other: str) -> bool:
    """Whether two methods look at the same stand-in with every seed, in the rows of one pool."""
    if not METHODS[first].group == METHODS[other].group == "lbt":
        return False
    mine, theirs = (
        {r["protocol"]["seed"]: r["numbers"].get("stand_in") for r in pick(own, experiment="orders", method=name)}
        for name in (first, other)
    )
    return all(mine[seed] == theirs[seed] for seed in mine if seed in theirs)


def stands(two: Sequence[tuple[float, float]], paired: bool = False) -> str:
    """``ahead`` or ``behind`` where mean ± standard deviation of both do not touch, else ``level``; – with few seeds.
    Of ``paired`` ones those of the differences count: they are ``level`` where 0 is inside.

    >>> stands([(0.9, 0.5), (0.8, 0.6), (0.85, 0.55)]), stands([(0.9, 0.5), (0.5, 0.6), (0.6, 0.55)])
    ('ahead', 'level')
    >>> stands([(0.1, 0.5)] * 3), stands([(0.1, 0.5)])
    ('behind', '–')
    >>> far = [(0.2, 0.21), (0.5, 0.52), (0.8, 0.81)]
    >>> stands(far), stands(far, paired=True)
    ('level', 'behind')
    """
    if len(two) < LEAST:
        return "–"
    mine, theirs = ([pair[i] for pair in two] for i in (0, 1))
    gap = mean(mine) - mean(theirs)
    spread = stdev(a - b for a, b in two) if paired else stdev(mine) + stdev(theirs)
    if abs(gap) <= spread:
        return "level"
    return "ahead" if gap > 0 else "behind"


@dataclass(frozen=True, slots=True)
class Against:
    """A method beside another: a word for each pool, all differences of one pool and seed, the mean over pools of A12,
    the means over pools of both, seed by seed, whether these are ``paired`` by their stand-ins, and how many of the
    pools are ``full`` of faults.
    """

    words: tuple[str, ...] = ()
    differences: tuple[float, ...] = ()
    a12: float | None = None
    means: tuple[tuple[float, float], ...] = ()
    paired: bool = False
    full: int = 0

    @property
    def word(self) -> str:
        """How the means over pools stand; – where no pool has room for orders to differ."""
        return "–" if self.words and self.full == len(self.words) else stands(self.means, self.paired)

    @property
    def gaps(self) -> list[float]:
        """The differences of the means over pools, seed by seed."""
        return [mine - theirs for mine, theirs in self.means]

    def count(self, word: str) -> int:
        return self.words.count(word)

    @property
    def judged(self) -> int:
        return sum(self.count(word) for word in WORDS)


def against(
    rows: Sequence[Row], first: str, other: str, what: str = "fdr_mean", data: str = "", pools: Sequence[str] = ()
) -> Against:
    """How a method stands against another on the pools of a data set, or of all; only on ``pools`` of these names."""
    words, differences, effects = [], [], []
    by_pool: list[dict[int, tuple[float, float]]] = []
    paired, crowded = [], 0
    for place, own in there(rows, data):
        found = pairs(own, first, other, what)
        if not found or (pools and place.attack not in pools):
            continue
        two = list(found.values())
        by_pool.append(found)
        paired.append(alike(own, first, other))
        crowded += (fault_share(own) or 0) > FULL
        words.append(stands(two, paired[-1]))
        differences += [mine - theirs for mine, theirs in two]
        effect = a12([mine for mine, _ in two], [theirs for _, theirs in two])
        effects += [effect] if effect is not None else []
    effect = mean(effects) if effects else None
    return Against(tuple(words), tuple(differences), effect, tuple(_means(by_pool)), all(paired), crowded)


def _means(by_pool: Sequence[dict[int, tuple[float, float]]]) -> Iterator[tuple[float, float]]:
    """The means over pools of both methods, for each seed that all pools have."""
    seeds = set.intersection(*(set(found) for found in by_pool)) if by_pool else set()
    for seed in sorted(seeds):
        mine, theirs = zip(*(found[seed] for found in by_pool), strict=True)
        yield mean(mine), mean(theirs)
