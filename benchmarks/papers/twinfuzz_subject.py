"""What TwinFuzz's experiments are made on: a plain net, the resistant one built from it, and their retraining."""

import functools
from collections.abc import Mapping
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
from assay.stages.trainers.kept_back import Parted, among, kept_back
from assay.stages.trainers.resistant import heap_for
from assay.stages.trainers.watch import State
from assay.subjects.bench import Bench, Data, Splits
from assay.subjects.data.load import load_splits
from assay.subjects.sources.load import load_target, module_of
from assay.subjects.target import Target, answer
from papers.subject import limited, moved_to

Params = dict[str, Any]

# Data sets with their nets and their eps, the first of which is the main one. Paper's code: 0.3, for MNIST.
NETS = {
    "mnist": ("lenet4", "lenet5"),
    "fashion-mnist": ("lenet4", "lenet5"),
    "cifar10": ("resnet20", "vgg16"),
    "digits": ("lenet4", "lenet5"),
}
MAIN_EPS = {"mnist": 0.3, "fashion-mnist": 0.1, "cifar10": 8 / 255, "digits": 0.2}
# The ball of C&W, which knows l2 only: radii in common use for these sets (those of Fashion-MNIST and digits ours).
RADIUS = {"mnist": 2.0, "fashion-mnist": 1.0, "cifar10": 0.5, "digits": 1.0}
KNOWN = {"lenet4", "lenet5", "resnet20", "vgg16"}

_LENET: Params = {"epochs": 10, "batch": 64, "lr": 1e-3, "optimiser": "adam", "schedule": "constant"}
_DEEP: Params = {"batch": 128, "optimiser": "sgd", "weight_decay": 5e-4, "augment": "flip,shift=0.125"}


@dataclass(frozen=True, slots=True)
class Plan:
    """How a net is trained plainly, made resistant, retrained, and trained adversarially as upper control."""

    base: Params
    resistant: Params
    retrain: Params
    adversarial: Params
    chunk: int  # rows at once on a GPU


def plan_of(data: str, net: str, epochs: int = 0, resistant_epochs: int = 0) -> Plan:
    """The plan of a net; ``epochs`` are those of retraining, 0 means 5."""
    few: Params = {"epochs": epochs or 5}
    own: Params = {"epochs": resistant_epochs or 10}
    if data != "cifar10":
        small: Params = {"batch": 32, "lr": 2e-3} if data == "digits" else {}
        lenet = _LENET | small
        # Adversarial training is no graph of a GPU: large batches, because each step costs nine of the others.
        return Plan(lenet, lenet | own, lenet | few, lenet | few | {"batch": 8 * lenet["batch"]}, 20000)
    # Paper's code: Adam 1e-4 or 1e-3, 20 epochs, then 10. Here: SGD with augmentation, 15 epochs and 10, because it
    # gets further in the device time there is.
    first = _DEEP | {"epochs": 15, "lr": 0.1 if net == "resnet20" else 0.05, "schedule": "cosine"}
    later = _DEEP | {"lr": 0.01, "schedule": "cosine"}
    return Plan(first, later | own, later | few, later | few, 4000)


class Twins:
    """The two nets of one data set, architecture, eps (linf) and seed, with the heap that made one of them resistant.

    Training images whose attacked forms are kept back to choose epochs are nobody's seeds.
    """

    def __init__(
        self, data: str, net: str, eps: float, seed: int, *, device: str, work: Path, limit: int, plan: Plan
    ) -> None:
        self.data, self.net, self.eps, self.seed, self.plan = data, net, eps, seed, plan
        self.rng = Stream(seed, ("twinfuzz", data, net))
        self.host = limited(load_splits(data), limit)
        place = work / f"{data}-{net}-{limit or 'all'}-{seed}"
        plain = place / "vulnerable.safetensors"
        train(net, self.host, plain, params=dict(plan.base), seed=seed, device=device)
        self.vulnerable = load_target(f"{net}@{plain}", device=device)
        again = place / f"resistant-{eps:.4g}-{plan.resistant['epochs']}.safetensors"
        ball: Params = {"eps": eps, "norm": "linf"}
        told = train(
            f"{net}@{plain}", self.host, again, trainer="resistant", params=plan.resistant, **ball, seed=seed,
            device=device,
        )  # fmt: skip
        self.resistant_seconds = told.seconds
        self.resistant = load_target(f"{net}@{again}", device=device)
        self.fit = bind("trainer", "resistant", plan.resistant, ball)
        self.work = place
        self.device = self.resistant.device
        self.chunks = Chunks(plan.chunk if self.device.type == "cuda" else 512)
        parts = ("train", "val", "test")
        self.splits = Splits(data, *(moved_to(self.host.part(p), self.device) for p in parts))

    @functools.cached_property
    def heap(self) -> Parted:
        """What the resistant net was trained on beside the clean images, and the part kept back: made once more."""
        made = heap_for(self.fit, self.vulnerable, self.host.part("train").cases, Stream(self.seed, ("train",)))
        return Parted(made.learn.to(self.device), made.check.to(self.device))

    @functools.cached_property
    def seeds_from(self) -> Data:
        """The training images that cases may grow from, on the host."""
        own = self.host.part("train")
        return replace(own, cases=own.cases[~kept_back(own.cases.origin, self.seed)], source="")

    def part(self, name: str) -> Cases:
        return self.splits.part(name).cases

    def module(self, target: Target) -> nn.Module:
        return module_of(target)

    def target(self, net: nn.Module) -> Target:
        return load_target(net, data=self.splits.part("train")[:64])

    def bench(self, target: Target, roles: Mapping[str, Target] | None = None) -> Bench:
        return Bench(target, roles or {}, chunks=self.chunks)

    def predicted(self, target: Target, x: Tensor) -> Tensor:
        return answer(target, x, self.chunks).argmax(1)

    def attacked(self, target: Target, cases: Cases, attack: str, ball: Params, rng: Stream) -> Cases:
        """An example of each case, with its clean parent beside it."""
        name, params = step(attack)
        bound = bind("attack", name, params, ball)

        def make(x: Tensor, y: Tensor, origin: Tensor) -> Tensor:
            made: Tensor = bound(target, x, y, rng=rng.at(name).rows(origin))
            return made.detach()

        with target.ready():
            made = self.chunks.map(make, cases.x, cases.y, cases.origin) if len(cases) else cases.x
        return Cases(made, cases.y, cases.origin, {"seed_x": cases.x})

    def retrained(self, extra: Cases | None) -> tuple[nn.Module, dict[str, Any]]:
        """The resistant net after more training on clean images, its heap and the extra cases; its validation numbers.

        The epoch is the one that is right on most of the kept-back part of the heap, at most a point of clean accuracy
        lost: the same pool for all, so that nobody's own kind of cases chooses.
        """
        parts = [self.heap.learn] if extra is None else [self.heap.learn, extra.to(self.device)]
        fit = bind("trainer", "plain", self.plan.retrain | {"best": "floor"})
        return self._fitted(fit, Cases.cat(parts), among(self.splits.part("val"), self.heap.check))

    def adversarial(self) -> tuple[nn.Module, dict[str, Any]]:
        """The upper control: the resistant net trained on, every batch attacked anew with PGD."""
        fit = bind("trainer", "adversarial", self.plan.adversarial, {"eps": self.eps, "norm": "linf"})
        return self._fitted(fit, self.heap.learn, self.splits.part("val"))

    def _fitted(self, fit: Bound, extra: Cases, val: Data) -> tuple[nn.Module, dict[str, Any]]:
        log = _Log()
        data = replace(self.splits, val=val)
        rng = Stream(self.seed, ("twinfuzz", "retrain"))
        made: nn.Module = fit(self.module(self.resistant), data, extra, rng=rng, watch=log)
        best = max(log.rows, key=lambda row: (row["score"], -row["val_loss"]))
        told = {"epoch": best["epoch"], "val_clean": best["val_accuracy"], "val_pool": best.get("failures_accuracy")}
        told |= {"floor_held": best["score"] >= 0, "train_seconds": sum(row["seconds"] for row in log.rows)}
        return made.eval(), {k: round(v, 5) if isinstance(v, float) else v for k, v in told.items()}


class _Log:
    """Who looks on and keeps the numbers of every epoch."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def resume(self) -> State | None:
        return None

    def batch(self, epoch: int, done: float) -> None: ...

    def epoch(self, state: State, net: nn.Module) -> None:
        self.rows = state.log


def share(right: Tensor) -> float | None:
    return round(float(right.double().mean()), 5) if len(right) else None


def drawn(cases: Cases, count: int, rng: Stream) -> Cases:
    """So many of them at random, in random order."""
    rows = torch.randperm(len(cases), generator=rng.generator())[:count]
    return cases[rows.to(cases.x.device)]
