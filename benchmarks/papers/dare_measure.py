"""How a net is measured: examples made once on the original net (static), and attacks made anew on the net itself."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.cases import Cases
from assay.engines.attack import attack
from assay.subjects.target import Target
from papers.dare_attacks import ATTACKS, SLOW, Examples, examples
from papers.dare_attacks import protocol as made_how
from papers.dare_subject import Params, Subject
from papers.twinfuzz_subject import share

# The balls of fresh attacks, linf and (for C&W) l2, each full and small: undefended nets stand near 0 in the full one,
# and a table of zeros tells nothing.
EPS = {"cifar10": (8 / 255, 1 / 255), "svhn": (8 / 255, 1 / 255), "fashion-mnist": (0.1, 0.02), "digits": (0.2, 0.05)}
RADIUS = {"cifar10": (0.5, 0.125), "svhn": (0.5, 0.125), "fashion-mnist": (1.0, 0.25), "digits": (1.0, 0.25)}
FRESH = {"fgsm": "fgsm", "bim": "bim(steps=20)", "pgd": "pgd(steps=50, restarts=2)"}
CW = "cw"
JSMA = "jsma"
ENTRIES = 0.01  # of all entries may be changed by JSMA, by any amount


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many images: static examples of test images and of training ones, fresh attacks; ``few`` are C&W's, JSMA's.

    ``draws`` is how often the noise of the control is drawn, ``fresh_draws`` how many of these are attacked anew.
    """

    static: int = 1000
    static_few: int = 200
    learn: int = 1000
    learn_few: int = 400
    fresh: int = 1000
    small: int = 1000
    few: int = 200
    draws: int = 3
    fresh_draws: int = 1

    def counts(self) -> dict[str, tuple[int, int]]:
        """Test and training images of each attack."""
        few, many = (self.static_few, self.learn_few), (self.static, self.learn)
        return {name: few if name in SLOW else many for name in ATTACKS}


def protocol(data: str, sizes: Sizes) -> Params:
    """What of this is part of a row."""
    balls = {"linf": [round(e, 6) for e in EPS[data]], "l2": list(RADIUS[data]), "entries": ENTRIES}
    return {
        "static": made_how(data),
        "fresh": {**FRESH, "cw": CW, "jsma": JSMA},
        "balls": balls,
        "sizes": asdict(sizes),
    }


class Measure:
    """The images of one subject, with the examples that fool its original net."""

    def __init__(self, subject: Subject, sizes: Sizes) -> None:
        self.subject, self.sizes = subject, sizes
        self.examples: Examples = examples(subject, sizes.counts())

    def __call__(self, net: nn.Module, *, fresh: bool = True) -> Params:
        """All numbers of a net; ``fresh`` are shares of all images, right and right still when attacked."""
        started, subject = time.perf_counter(), self.subject
        target = subject.target_of(net)
        static = {name: share(subject.right(target, some)) for name, some in self.examples.test.items()}
        numbers: Params = {"clean": subject.clean(target), "static": static}
        if fresh:
            numbers |= self._fresh(target)
        return with_means(numbers) | {"measure_seconds": round(time.perf_counter() - started, 2)}

    def _fresh(self, target: Target) -> Params:
        sizes, (full, small) = self.sizes, EPS[self.subject.data]
        test = self.subject.part("test")
        told: Params = {
            key: {
                name: standing(self._broken(target, test[:count], text, eps=eps, norm="linf")[0])
                for name, text in FRESH.items()
            }
            for key, eps, count in (("fresh", full, sizes.fresh), ("small", small, sizes.small))
        }
        few = test[: sizes.few]
        broken, size = self._broken(target, few, CW)
        for key, radius in zip(("fresh", "small"), RADIUS[self.subject.data], strict=True):
            told[key]["cw"] = standing(broken & (size <= radius))
        attacked = broken & (size > 0)
        told["smallest_l2"] = round(float(size[attacked].mean()), 5) if bool(attacked.any()) else None
        width = few.x[0].numel()
        entries = max(2, round(ENTRIES * width))
        told["fresh"]["jsma"] = standing(self._broken(target, few, JSMA, eps=entries, norm="l0")[0])
        return told

    def _broken(self, target: Target, cases: Cases, text: str, **ball: Any) -> tuple[Tensor, Tensor]:
        """Which cases are wrong, attacked or as they are, and by how large a change."""
        made = attack(text, target, cases.x, cases.y, **ball, seed=self.subject.seed, batch=self.subject.chunks.size)
        return made.info["success"], made.info["size"]


def standing(broken: Tensor) -> float | None:
    return share(~broken)


def with_means(numbers: Params) -> Params:
    """The numbers with the mean of each column's attacks; static and fresh are never mixed."""
    means = {}
    for column in ("static", "fresh", "small"):
        values = [v for v in numbers.get(column, {}).values() if v is not None]
        if values:
            means[f"{column}_mean"] = round(mean(values), 5)
    return numbers | means


def averaged(several: Sequence[Mapping[str, Any]]) -> Params:
    """The mean of several measurements, number by number, each over those that have it.

    >>> averaged([{"clean": 0.5, "static": {"fgsm": 0.2}}, {"clean": 0.7, "small": {"bim": 1}}])
    {'clean': 0.6, 'static': {'fgsm': 0.2}, 'small': {'bim': 1.0}}
    """
    told: Params = {}
    for name in dict.fromkeys(key for numbers in several for key in numbers):
        values = [numbers[name] for numbers in several if numbers.get(name) is not None]
        if values and isinstance(values[0], Mapping):
            told[name] = averaged(values)
        else:
            told[name] = float(f"{mean(values):.8g}") if values else None
    return told


def moved(before: nn.Module, after: nn.Module) -> Params:
    """How many weights two nets of one kind differ in, and how far they lie apart (L2)."""
    others, changes = dict(after.named_parameters()), list[Tensor]()
    with torch.no_grad():
        changes += [(others[name] - weight).double().flatten() for name, weight in before.named_parameters()]
    delta = torch.cat(changes)
    return {"weights": int((delta != 0).sum()), "of": len(delta), "l2": float(f"{float(delta.norm()):.5g}")}
