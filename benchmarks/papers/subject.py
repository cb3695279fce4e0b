"""What RobOT's experiments are made on: a plain net, its attack-made pool, and how a retrained net is measured."""

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.randomness import Stream
from assay.core.registry import Bound, bind
from assay.core.specs import step
from assay.engines.train import train
from assay.subjects.bench import Bench, Data, Splits
from assay.subjects.data.load import load_splits
from assay.subjects.sources.load import load_target, module_of
from assay.subjects.target import Target, answer
from papers.turns import Turns

Params = Mapping[str, Any]

# Paper: step eps/6, only successful examples kept. Here: every example, because a pool is what a selector chooses from.
POOL = ("fgsm(early_stop=false)", "pgd(steps=10, step=0.16666667, early_stop=false)")
WHITE = "pgd(steps=20)"
QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
BINS = [round(-8 + 0.25 * i, 2) for i in range(45)]  # log10 of FOL, for histograms


@dataclass(frozen=True, slots=True)
class Plan:
    """How the net of a data set is trained and retrained."""

    net: str
    base: Params
    retrain: Params
    chunk: int  # rows at once on a GPU


_LENET = {"epochs": 10, "batch": 64, "lr": 1e-3, "optimiser": "adam", "schedule": "constant"}
_RESNET = {"batch": 128, "optimiser": "sgd", "weight_decay": 5e-4, "augment": "flip,shift=0.125"}
PLANS = {
    "mnist": Plan("lenet5", _LENET, _LENET, 20000),
    "fashion-mnist": Plan("lenet5", _LENET, _LENET, 20000),
    # Paper: 150 epochs with Adam, 40 of retraining. Here: fewer, because of device time; the page says so.
    "cifar10": Plan(
        "resnet20",
        {**_RESNET, "epochs": 30, "lr": 0.1, "schedule": "cosine"},
        {**_RESNET, "epochs": 10, "lr": 0.01, "schedule": "cosine"},
        5000,
    ),
    "digits": Plan("lenet5", {**_LENET, "lr": 2e-3, "batch": 32}, {**_LENET, "batch": 32}, 2000),
}


class Subject:
    """One net trained plainly on one data set with one seed, attacked within one eps (linf)."""

    def __init__(self, data: str, eps: float, seed: int, device: str, work: Path, limit: int = 0) -> None:
        self.data, self.eps, self.seed, self.plan = data, eps, seed, PLANS[data]
        self.rng = Stream(seed, ("robot", data))
        self.turns = Turns()
        splits = limited(load_splits(data), limit)
        weights = work / f"{data}-{limit or 'all'}-{seed}.safetensors"
        train(self.plan.net, splits, weights, params=dict(self.plan.base), seed=seed, device=device)
        self.f0 = load_target(f"{self.plan.net}@{weights}", device=device)
        self.chunks = Chunks(self.plan.chunk if self.f0.device.type == "cuda" else 512)
        self.splits = Splits(data, *(moved_to(splits.part(p), self.f0.device) for p in ("train", "val", "test")))

    @property
    def module(self) -> nn.Module:
        return module_of(self.f0)

    def part(self, name: str) -> Cases:
        return self.splits.part(name).cases

    def target(self, net: nn.Module) -> Target:
        return load_target(net, data=self.splits.part("train")[:64])

    def bench(self, target: Target) -> Bench:
        return Bench(target, chunks=self.chunks)

    def score(self, target: Target, cases: Cases, name: str) -> Tensor:
        """A score of all cases, fol in linf with this eps."""
        params = {"norm": "linf", "eps": self.eps} if name == "fol" else {}
        bound, bench = bind("score", name, params), self.bench(target)
        rows = torch.arange(len(cases), device=cases.x.device)
        return self.chunks.map(lambda some: bound(bench, cases[some]).detach(), rows)

    def attacked(self, target: Target, cases: Cases, attack: str, rng: Stream) -> Cases:
        """An example of each case, with its seed beside it."""
        name, params = step(attack)
        bound = bind("attack", name, params, {"eps": self.eps, "norm": "linf"})

        def make(x: Tensor, y: Tensor, origin: Tensor) -> Tensor:
            moved: Tensor = bound(target, x, y, rng=rng.at(name).rows(origin))
            return moved.detach()

        with target.ready():
            made = self.chunks.map(make, cases.x, cases.y, cases.origin)
        return Cases(made, cases.y, cases.origin, {"seed_x": cases.x})

    def examples(self, target: Target, cases: Cases, rng: Stream) -> Cases:
        """FGSM and PGD examples of all cases, in this order."""
        return Cases.cat([self.attacked(target, cases, attack, rng) for attack in POOL])

    @functools.cached_property
    def pool(self) -> Cases:
        """FGSM and PGD examples of every training image against the plain net, with their scores."""
        made = self.examples(self.f0, self.part("train"), self.rng.at("pool"))
        return made.note(**{name: self.score(self.f0, made, name) for name in ("fol", "zol", "gini")})

    @functools.cached_property
    def static_test(self) -> Cases:
        made = self.examples(self.f0, self.part("test"), self.rng.at("static"))
        return made.note(fooling=~self.right(self.f0, made))

    def validation(self, target: Target) -> Data:
        """Clean validation images and their examples made against that target, which choose the best epoch."""
        made = self.examples(target, self.part("val"), self.rng.at("validation"))
        return replace(self.splits.part("val"), cases=Cases.cat([self.part("val"), made]))

    def predicted(self, target: Target, cases: Cases) -> Tensor:
        return answer(target, cases.x, self.chunks).argmax(1)

    def right(self, target: Target, cases: Cases) -> Tensor:
        return self.predicted(target, cases) == cases.y

    def retrained(self, net: nn.Module, extra: Cases | None, val: Data, fit: Bound, name: str) -> nn.Module:
        """The net after more training, on the training part and the extra cases."""
        data = replace(self.splits, val=val)
        made: nn.Module = fit(net, data, extra, rng=Stream(self.seed, ("robot", name)), watch=self.turns)
        return made.eval()

    def picked(self, cases: Cases) -> dict[str, Any]:
        """What kind of cases a selector chose from a pool (Fig. 4 of the paper)."""
        counts = torch.bincount(cases.y, minlength=10).float() / max(1, len(cases))
        return {
            "zol": _quantiles(cases.info["zol"]),
            "fol": _quantiles(cases.info["fol"]),
            "fooling": _share(~self.right(self.f0, cases)),
            "classes": [round(float(counts.min()), 4), round(float(counts.max()), 4)],
        }

    def measured(self, net: nn.Module) -> dict[str, Any]:
        """Clean accuracy, static and white-box empirical robustness on the test part, FOL of fresh examples."""
        started = time.perf_counter()
        target, test, made = self.target(net), self.part("test"), self.static_test
        right = self.right(target, made)
        half = len(test)
        white = self.attacked(target, test, WHITE, self.rng.at("white"))
        numbers: dict[str, Any] = {
            "clean": _share(self.right(target, test)),
            "static": _share(right),
            "static_fgsm": _share(right[:half]),
            "static_pgd": _share(right[half:]),
            "static_fooling": _share(right[made.info["fooling"]]),
            "white": _share(self.right(target, white)),
        }
        fresh = self.examples(target, test, self.rng.at("fresh"))
        fol = self.score(target, fresh, "fol")
        for name, values in (("fgsm", fol[:half]), ("pgd", fol[half:])):
            numbers[f"fol_{name}"] = {"mean": _rounded(values.mean()), "quantiles": _quantiles(values)}
            if self.seed == 0:
                numbers[f"fol_{name}"]["histogram"] = _histogram(values)
        return numbers | {"measure_seconds": round(time.perf_counter() - started, 2), "device": self.f0.device.type}


def limited(splits: Splits, limit: int) -> Splits:
    if not limit:
        return splits
    some = {part: splits.part(part)[: limit if part == "train" else max(1, limit // 5)] for part in ("train", "val")}
    return Splits(splits.name, **some, test=splits.part("test")[: max(1, limit // 5)])


def moved_to(data: Data, device: torch.device) -> Data:
    return replace(data, cases=data.cases.to(device))


def _rounded(value: Tensor | float) -> float:
    return float(f"{float(value):.5g}")


def _share(right: Tensor) -> float:
    return round(float(right.double().mean()), 5) if len(right) else 0.0


def _quantiles(values: Tensor) -> list[float]:
    if not len(values):
        return []
    at = torch.tensor(QUANTILES, dtype=torch.float64)
    return [_rounded(v) for v in torch.quantile(values.cpu().double(), at)]


def _histogram(values: Tensor) -> list[int]:
    """Counts between the BINS, those outside at the ends."""
    place = torch.bucketize(values.cpu().double().clamp_min(1e-30).log10(), torch.tensor(BINS, dtype=torch.float64))
    return torch.bincount(place, minlength=len(BINS) + 1).tolist()


def trainer(name: str, params: Params, offered: Sequence[tuple[str, Any]] = ()) -> Bound:
    return bind("trainer", name, params, dict(offered))
