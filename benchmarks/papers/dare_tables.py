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
from papers.tables import number, pick

SEEDS = (0, 1, 2, 3, 4)
ORDER = (*MAIN, *ABLATIONS)
SEEN = tuple(f"at-{name}" for name in ATTACKS)  # trained on the examples of one attack
CONTROLS = ("noise", "ce", "distilled")
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


def shared(own: Sequence[Row], arms: Sequence[str], name: str) -> dict[str, list[float]]:
    """A number of several arms, over the seeds that all of them have; empty where one has none."""
    told = {
        arm: {r["protocol"]["seed"]: v for r in pick(own, arm=arm) if (v := number(r, name)) is not None}
        for arm in arms
    }
    seeds = sorted(set.intersection(*map(set, told.values()))) if told else []
    return {arm: [values[seed] for seed in seeds] for arm, values in told.items()} if seeds else {}


def winners(own: Sequence[Row], arms: Sequence[str], attack: str) -> list[str]:
    """Who has the highest mean ER of a scenario, several where they are equal; none where an arm has no rows."""
    told = {arm: round(mean(values), 5) for arm, values in shared(own, arms, f"static.{attack}").items()}
    return [arm for arm, value in told.items() if value == max(told.values())]


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
