"""RQ1: do tests that a generator made without the model help it learn from few images?"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.subjects.bench import Data
from assay.subjects.target import Target
from papers.cagfuzz_subject import Ground, Params
from papers.cagfuzz_tools import CAGFUZZ, FIXED, NOISE, Bank, told

ORIGINAL, TWICE, SAMPLE = "original", "twice", "cagfuzz-sample"
SIZES = {"grey": (10, 4), "colour": (100, 10)}  # images a class to learn from and to test with, the paper's
# Paper: SGD with lr 0.05 for 50 epochs; its code has batch 256 and momentum 0.9 for whole data sets. Here: small
# batches and no momentum. With 256 an epoch of 100 images is one step, with tests or without. Of 18 LeNets on MNIST
# (seeds 0 to 2, arms original and twice) 7 stayed below 0.2 with batch 256 and momentum, one with 64 and momentum, none
# with 32 and no momentum (0.71 to 0.85 of the test set).
PLAN: Params = {"lr": 0.05, "optimiser": "sgd", "schedule": "constant", "momentum": 0.0}
BATCH = {"grey": 32, "colour": 128}


def arms_of(ground: Ground) -> tuple[str, ...]:
    return (ORIGINAL, TWICE, NOISE, *(f"fgsm-{m}" for m in ground.models), CAGFUZZ, SAMPLE)


def plan_of(ground: Ground) -> Params:
    return PLAN | {"batch": BATCH[ground.kind], "epochs": ground.scale.small_epochs}


def protocol(ground: Ground, model: str, arm: str, seed: int) -> Params:
    """What makes a row of RQ1."""
    per = SIZES[ground.kind]
    return {
        "experiment": "rq1",
        "data": ground.data,
        "model": model,
        "arm": arm,
        "seed": seed,
        "a_class": list(per),
        "plan": plan_of(ground),
        "train": ground.scale.train,
        "eps": round(ground.eps, 6),
        **told(ground, (CAGFUZZ, NOISE, FIXED)),
    }


@dataclass(frozen=True, slots=True)
class _Made:
    """Tests of the sample, ``origin`` the image of each, and what is to be told of them."""

    cases: Cases
    told: Params


class Small:
    """The small sample of one seed, and the nets and tests that come of it."""

    def __init__(self, ground: Ground, seed: int) -> None:
        self.ground, self.seed = ground, seed
        few, tests = SIZES[ground.kind]
        rng = ground.rng("rq1", seed)
        self.learn = _drawn(ground.part("train"), few, rng.at("train"))
        self.test = _drawn(ground.part("test"), tests, rng.at("test"))
        self.val = ground.part("val")[:64]  # looked at after each epoch, and chooses nothing
        self.whole = ground.part("test")
        self._originals: dict[str, Target] = {}
        self._made: dict[tuple[str, str], _Made] = {}

    def numbers(self, model: str, arm: str) -> Params:
        """The row of an arm."""
        began, ground = time.perf_counter(), self.ground
        extra = self._extra(model, arm)
        made = time.perf_counter()
        target = self.original(model) if arm == ORIGINAL else ground.target_of(self._trained(model, extra.cases))
        return {
            "small": ground.accuracy(target, self.test),
            "whole": ground.accuracy(target, self.whole),
            "images": len(self.learn),
            "tests": len(extra.cases),
            **extra.told,
            "make_seconds": round(made - began, 2),
            "train_seconds": round(time.perf_counter() - made, 2),
            "machine": ground.machine,
        }

    def original(self, model: str) -> Target:
        """The net that learned from the sample alone; FGSM is made on it, and it counts active neurons."""
        if model not in self._originals:
            self._originals[model] = self.ground.target_of(self._trained(model, None))
        return self._originals[model]

    def _trained(self, model: str, tests: Cases | None) -> nn.Module:
        """The net after its last epoch; arms of a seed begin with the same weights.

        Paper: images whose test is dropped have none. Here: such an image stands there a second time itself, so that
        every arm but the original takes as many steps, and ``twice`` is the arm without tests.
        """
        ground, learn = self.ground, self.learn
        if tests is not None:
            x = learn.x.clone()
            x[tests.origin] = tests.x
            learn = Cases.cat([learn, learn.with_x(x)])
        net = ground.fresh(model, self.seed)
        made, last = ground.fitted(net, plan_of(ground), learn, self.val, Stream(self.seed, ("rq1", "train")))
        made.load_state_dict(last.weights)
        return made.eval()

    def _extra(self, model: str, arm: str) -> _Made:
        """The tests that are learned beside the sample."""
        if arm in (ORIGINAL, TWICE):
            return _Made(self.learn[:0], {})
        if arm.startswith("fgsm-"):
            return self._once("fgsm", arm.removeprefix("fgsm-"), self._fgsm)
        source = CAGFUZZ if arm == NOISE else arm
        tests = self._once(source, model, partial(self._generated, source))
        return self._noise(model, tests) if arm == NOISE else tests

    def _once(self, source: str, model: str, make: Callable[[str], _Made]) -> _Made:
        if (source, model) not in self._made:
            self._made[source, model] = make(model)
        return self._made[source, model]

    def _fgsm(self, model: str) -> _Made:
        """A test of each image; kept where it activates more of the model's neurons than the image does."""
        bank = Bank(self.ground, self.original(model))
        x = next(iter(bank.candidates(FIXED, self.learn, self._rng, 1)))
        more = bank.counter(x, self.ground.chunks) > bank.counter(self.learn.x, self.ground.chunks)
        return _Made(self.learn.with_x(x)[more], {"l2": _l2(x[more], self.learn.x[more])})

    def _generated(self, source: str, model: str) -> _Made:
        """The most similar candidate above 0.9 of each image that activates more of the model's neurons."""
        tests = self._bank(source, model).tests(CAGFUZZ, self.learn, self._rng, must=True).cases
        told = {"l2": _l2(tests.x, tests.info["seed_x"]), "cosine": _mean(tests.info["cosine"])}
        return _Made(Cases(tests.x, tests.y, tests.origin, {"which": tests.info["which"]}), told)

    def _noise(self, model: str, tests: _Made) -> _Made:
        """Noise on the images that have a test, of each as long as the test's change."""
        rows, which = tests.cases.origin, tests.cases.info["which"]
        clean = self.learn[rows]
        x = self._bank(CAGFUZZ, model).mutated(NOISE, clean, which, self._rng.at("noise").rows(rows))
        return _Made(clean.with_x(x), {"l2": _l2(x, clean.x)})

    def _bank(self, source: str, model: str) -> Bank:
        sample = None
        if source == SAMPLE:
            bare = Cases.of(self.learn.x.cpu(), self.learn.y.cpu())
            sample = Data(f"{self.ground.data}/sample-{self.seed}", bare, self.ground.spec)
        return Bank(self.ground, self.original(model), training=sample)

    @property
    def _rng(self) -> Stream:
        return self.ground.rng("rq1", self.seed, "made")


def _drawn(cases: Cases, per: int, rng: Stream) -> Cases:
    """So many images of each class, fresh cases."""
    rows = []
    for label in cases.y.unique().tolist():
        own = (cases.y == label).nonzero().flatten().cpu()
        rows.append(own[torch.randperm(len(own), generator=rng.at(label).generator())[:per]])
    every = torch.cat(rows).to(cases.x.device)
    return Cases.of(cases.x[every], cases.y[every])


def _l2(x: Tensor, clean: Tensor) -> float | None:
    return _mean((x - clean).flatten(1).norm(dim=1))


def _mean(values: Tensor) -> float | None:
    return round(float(values.double().mean()), 4) if len(values) else None
