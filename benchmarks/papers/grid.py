"""What RobOT's experiments vary, as data: selectors, arms, sizes, and the rows that a full page asks for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from papers.makers import MAKERS, TOOLS

MAIN_EPS = {"mnist": 0.1, "fashion-mnist": 0.1, "cifar10": 0.01, "digits": 0.1}
SIZES = (0.01, 0.02, 0.04, 0.06, 0.1)
SELECTORS = {"BE-ST": "bi_end", "KM-ST": "k_multisection", "DeepGini": "top(score=gini)", "random": "random"}

# Same number of cases and of epochs in each: rounds × epochs = 10. `make`: against which net a round's cases are made.
# `candidates`: how many times as many are made as are taken. `heap`: cases of all rounds, or of the last one alone,
# which then has as many as all rounds together.
_FRESH = {"rounds": 5, "make": "current", "heap": "all", "select": "random", "candidates": 1}
ARMS: dict[str, Mapping[str, Any]] = {
    "static": {**_FRESH, "make": "f0"},
    "static, largest loss per class": {**_FRESH, "make": "f0", "select": "spread", "candidates": 5},
    "fresh, 2 rounds": {**_FRESH, "rounds": 2},
    "fresh": _FRESH,
    "fresh, 10 rounds": {**_FRESH, "rounds": 10},
    "fresh, heap last": {**_FRESH, "heap": "last"},
    "fresh, heap last, 10 rounds": {**_FRESH, "heap": "last", "rounds": 10},
    "fresh, BE-ST": {**_FRESH, "select": "bi_end", "candidates": 5},
    "fresh, DeepGini": {**_FRESH, "select": "top(score=gini)", "candidates": 5},
    "fresh, largest loss": {**_FRESH, "select": "top(score=zol)", "candidates": 5},
    "fresh, largest loss per class": {**_FRESH, "select": "spread", "candidates": 5},
}
ADVERSARIAL = {"epochs": 5, "batch": 512, "lr": 1e-3, "schedule": "constant"}
FACTORS = (0.25, 0.5, 1.0, 1.5)  # of eps, for nets of graded robustness
TIMES = (2.0, 8.0)  # seconds that each maker has on the GPU; its pool is what it finds in the longer
FEW = (0.01, 0.1)  # sizes of what stands on those pools


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that one command computes: what they have in common, what varies, and the command."""

    title: str
    match: Mapping[str, Any]
    seeds: tuple[int, ...]
    vary: Mapping[str, tuple[Any, ...]]
    command: str

    def size(self) -> int:
        total = len(self.seeds)
        for values in self.vary.values():
            total *= len(values)
        return total


def _selection(data: str, eps: float, seeds: tuple[int, ...], sizes: tuple[float, ...]) -> Group:
    told = "" if eps == MAIN_EPS[data] else f" --eps {eps:g}"
    few = "" if sizes == SIZES else f" --sizes {' '.join(f'{s:g}' for s in sizes)}"
    command = f"rq2 --data {data}{told}{few} --seeds {' '.join(map(str, seeds))}"
    match = {"experiment": "rq2", "data": data, "eps": eps}
    vary = {"share": sizes, "select": tuple(SELECTORS.values())}
    return Group(f"selection, {data}, eps {eps:g}", match, seeds, vary, command)


def groups() -> list[Group]:
    """Every row that a full page has."""
    found = [
        _selection("mnist", 0.1, (0, 1, 2, 3, 4), SIZES),
        _selection("fashion-mnist", 0.1, (0, 1, 2, 3, 4), SIZES),
        _selection("mnist", 0.3, (0, 1, 2), (0.01, 0.1)),
        _selection("fashion-mnist", 0.03, (0, 1, 2), (0.01, 0.1)),
        _selection("cifar10", 0.01, (0, 1), (0.01, 0.1)),
    ]
    for data in ("mnist", "fashion-mnist"):
        eps = MAIN_EPS[data]
        here = {"data": data, "eps": eps}
        three = (0, 1, 2)
        found += [
            Group(
                f"arms, {data}",
                {"experiment": "arms", **here, "share": 0.1},
                three,
                {"arm": tuple(ARMS)},
                f"arms --data {data} --sizes 0.1 --seeds 0 1 2",
            ),
            Group(
                f"adversarial training, {data}",
                {"experiment": "adversarial", **here},
                (0, 1),
                {"train_eps": tuple(round(f * eps, 6) for f in FACTORS)},
                f"rq1 --data {data} --seeds 0 1",
            ),
            *_made(data, three if data == "mnist" else (0, 1)),
        ]
    return found


def _made(data: str, seeds: tuple[int, ...]) -> list[Group]:
    """The rows that stand on what tools make within a time."""
    here = {"data": data, "eps": MAIN_EPS[data]}
    on = here | {"device": "cuda"}
    pools = tuple(m for m in TOOLS.values() if m != "robot")
    rest = f"--data {data} --seeds {' '.join(map(str, seeds))}"
    few = f"--sizes {' '.join(f'{s:g}' for s in FEW)}"
    selects = tuple(SELECTORS.values())
    return [
        Group(
            f"selection from pools of tools, {data}",
            {"experiment": "pools", **on, "time": TIMES[-1]},
            seeds,
            {"maker": pools, "share": FEW, "select": selects},
            f"pools {rest} {few}",
        ),
        Group(
            f"tests of tools (Table IV), {data}",
            {"experiment": "transfer", **here},
            seeds,
            {"share": FEW, "select": selects},
            f"transfer {rest} {few}",
        ),
        Group(
            f"equal time (Table V), {data}",
            {"experiment": "rq3", **on},
            seeds,
            {"maker": tuple(MAKERS.values()), "time": TIMES},
            f"rq3 {rest}",
        ),
    ]
