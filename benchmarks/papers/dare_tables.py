"""What the tables of DARE's page share: its models, the order and names of arms, which rows may stand together."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

from papers.dare_arms import ABLATIONS, MAIN
from papers.dare_attacks import ATTACKS
from papers.dare_measure import Sizes
from papers.dare_subject import DATA, EPOCHS, NETS
from papers.rows import Row, key
from papers.tables import column, number, pick

SEEDS = (0, 1, 2, 3, 4)
ORDER = (*MAIN, *ABLATIONS)
SEEN = tuple(f"at-{name}" for name in ATTACKS)  # trained on the examples of one attack
CONTROLS = ("noise", "ce", "distilled")
RACE = ("dare", *SEEN)  # the paper's: who has the highest static ER of a scenario
TITLES = {"fgsm": "FGSM", "bim": "BIM", "pgd": "PGD", "jsma": "JSMA", "cw": "C&W"}
NAMES = {
    "dare": "DARE",
    "noise": "weight noise",
    "ce": "cross-entropy on D",
    "whole": "trained on T and D",
    **{f"at-{name}": f"trained on {title}" for name, title in TITLES.items()},
    "code": "ten steps, as the public code",
    "dare-noslice": "DARE without slice",
    "noise-noslice": "weight noise as large as that",
    "dare-last": "cut at the softmax",
    "dare-notransform": "no transformation",
    "slice=random": "random slice",
    "slice=links": "slice of links",
    "layer=penultimate": "cut before the logits",
    "made-history": "history made by fine-tuning",
}
COLUMNS = {"static_mean": "static", "small_mean": "fresh, small ball", "fresh_mean": "fresh, full ball"}


@dataclass(frozen=True, slots=True)
class Model:
    """A net on a data set: five scenarios, one for each attack."""

    data: str
    net: str

    @property
    def title(self) -> str:
        return f"{self.data}, {self.net}"

    def rows(self, rows: Sequence[Row]) -> list[Row]:
        return pick(rows, data=self.data, net=self.net)


def models() -> list[Model]:
    """The nine of the paper."""
    return [Model(data, net) for data in DATA for net in NETS]


def found(rows: Sequence[Row]) -> Iterator[tuple[Model, list[Row]]]:
    """The models that have rows."""
    for model in models():
        own = model.rows(rows)
        if own:
            yield model, own


def beside(rows: Sequence[Row]) -> list[tuple[Model, list[Row]]]:
    """Models with rows that are none of the paper's: they stand in tables of ours alone, and in no race."""
    pairs = dict.fromkeys((r["protocol"]["data"], r["protocol"]["net"]) for r in rows)
    others = [Model(*pair) for pair in pairs if Model(*pair) not in models()]
    return [(model, model.rows(rows)) for model in others]


def settings_of(protocol: Mapping[str, Any]) -> dict[str, Any]:
    """What rows of one table share."""
    return {k: v for k, v in protocol.items() if k not in ("seed", "arm", "how")}


def usual(rows: Sequence[Row]) -> list[Row]:
    """Rows that may stand in one table: of each model those of its commonest settings, of each seed those of one net,
    the one with most rows, and of an arm the last.
    """
    groups: dict[tuple[str, str], dict[str, dict[int, dict[str, dict[str, Row]]]]] = {}
    for row in rows:
        p, mark = row["protocol"], row["numbers"]["fingerprint"]
        alike = groups.setdefault((p["data"], p["net"]), {}).setdefault(key(settings_of(p)), {})
        alike.setdefault(p["seed"], {}).setdefault(mark, {})[p["arm"]] = row
    kept = list[Row]()
    for variants in groups.values():
        nets = [
            [max(marks.values(), key=len) for marks in seeds.values()] for seeds in variants.values()
        ]  # of each setting, one net a seed
        kept += [row for one in max(nets, key=lambda some: sum(map(len, some))) for row in one.values()]
    return kept


def common(own: Sequence[Row], arms: Sequence[str], name: str) -> list[int]:
    """The seeds in which all of these arms have a number."""
    told = [{r["protocol"]["seed"] for r in pick(own, arm=arm) if number(r, name) is not None} for arm in arms]
    return sorted(set.intersection(*told)) if told else []


def of_seeds(own: Sequence[Row], seeds: Sequence[int]) -> list[Row]:
    return [r for r in own if r["protocol"]["seed"] in seeds]


def over(own: Sequence[Row], seeds: Sequence[int], arm: str, name: str) -> list[float]:
    """A number of an arm over these seeds; empty where one of them lacks it, so that cells of a row are of the same."""
    values = column(pick(of_seeds(own, seeds), arm=arm), name)
    return values if len(values) == len(seeds) else []


def winners(own: Sequence[Row], arms: Sequence[str], attack: str) -> list[str]:
    """Who has the highest mean ER of a scenario over the seeds that all have, several where they are equal."""
    name = f"static.{attack}"
    seeds = common(own, arms, name)
    told = {arm: round(mean(over(own, seeds, arm, name)), 5) for arm in arms} if seeds else {}
    return [arm for arm, value in told.items() if value == max(told.values())]


COUNTS = ("no", "one", "two", "three", "four", "five")


def seeds_told(count: int) -> str:
    """How many seeds, in words.

    >>> seeds_told(1), seeds_told(3), seeds_told(12)
    ('one seed', 'three seeds', '12 seeds')
    """
    return f"{COUNTS[count] if count < len(COUNTS) else count} seed{'s' * (count != 1)}"


def command(model: Model, rows: Sequence[Row], seeds: Sequence[int] = SEEDS, arms: Sequence[str] = ()) -> str:
    """What computes the rows of a model as those were that are there."""
    parts = [f"--data {model.data} --nets {model.net} --seeds {' '.join(map(str, seeds))}"]
    own = model.rows(rows)
    if own:
        p = own[0]["protocol"]
        parts += [f"--epochs {p['base']['epochs']}"] if p["base"]["epochs"] != EPOCHS else []
        soft = [r["protocol"]["how"]["epochs"] for r in pick(own, arm="distilled")]
        parts += [f"--distil-epochs {soft[0]}"] if soft and soft[0] != 20 else []
        usual_sizes = asdict(Sizes())
        parts += [f"--{k.replace('_', '-')} {v}" for k, v in p["sizes"].items() if v != usual_sizes.get(k)]
    parts += [f"--arms {' '.join(arms)}"] if arms else []
    return " ".join(parts)
