"""What makes cases: testing tools and an attack, each against the plain net. Pools grow from training images; tests,
which nobody learns from, from test images."""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.cases import Cases
from assay.core.shards import decode, encode
from assay.engines.found import Found
from assay.engines.fuzz import fuzz
from assay.recipes.recipe import ball_of, resolve
from assay.subjects.bench import Data
from papers.subject import POOL, Subject

# The makers by their names on the page. DeepXplore is what RobOT compares with under that name: its choice of neurons
# in the loop of ADAPT.
TOOLS = {"DeepXplore": "deepxplore-alone", "DLFuzz": "dlfuzz", "ADAPT": "adapt", "FOL-Fuzz": "robot"}
MAKERS = {**TOOLS, "PGD-10": "attack", "noise": "noise"}
TESTS = 10_000  # tests of one tool to measure on, drawn from all it makes of the test images
BATCH = {"cuda": 8192}  # images attacked between two looks at the clock
WARM = 1.0  # seconds of a tool's first run on a GPU in a process, which do not count: kernels are chosen in them


@dataclass(frozen=True, slots=True)
class Made:
    """Failing cases in random order, no more than are learned from, and how many were found how fast."""

    cases: Cases
    told: dict[str, Any]


class Makers:
    """The pools and tests of one subject, made when first asked for; runs are kept in a folder and not made again."""

    def __init__(self, subject: Subject, folder: Path, limit: int = 0) -> None:
        self.subject, self.folder = subject, folder
        self.prefix = f"{subject.data}-{limit or 'all'}-{subject.seed}"
        self._pools: dict[tuple[str, float], Made] = {}
        self._tests: dict[str, Made] = {}

    def pool(self, maker: str, seconds: float) -> Made:
        """What the maker finds from training images within the time: at most twice as many as there are images."""
        key = (maker, seconds)
        if key not in self._pools:
            most = 2 * len(self.subject.part("train"))
            made = self._fooling(seconds, most) if maker == "attack" else self._grown(maker, "train", seconds)
            cases = self._some(made.cases, most, f"{maker} {seconds:g}").to(self.subject.f0.device)
            names = ("fol", "zol", "gini")
            scores = {name: self.subject.score(self.subject.f0, cases, name) for name in names} if len(cases) else {}
            self._pools[key] = Made(cases.note(**scores), made.told | moved(cases))
            print(f"made {self.prefix}: {maker} {seconds:g} s, {self._pools[key].told}", flush=True)
        return self._pools[key]

    def tests(self, maker: str) -> Made:
        """What the tool makes of the test images, every one worked once."""
        if maker not in self._tests:
            made = self._grown(maker, "test", None)
            cases = self._some(made.cases, TESTS, f"tests {maker}").to(self.subject.f0.device)
            self._tests[maker] = Made(cases, made.told | moved(cases) | {"used": len(cases)})
            print(f"tests {self.prefix}: {maker}, {self._tests[maker].told}", flush=True)
        return self._tests[maker]

    def judged(self, net: nn.Module) -> dict[str, float | None]:
        """Accuracy on the tests of every tool: static, as they were made against the plain net."""
        target = self.subject.target(net)
        return {maker: share(self.subject.right(target, self.tests(maker).cases)) for maker in TOOLS.values()}

    def _place(self, maker: str, part: str, seconds: float | None) -> Path:
        """Where it is kept; another recipe, another place."""
        config = json.dumps(recipe(maker, self.subject.eps), sort_keys=True)
        digest = hashlib.sha256(config.encode()).hexdigest()[:8]
        budget = "once" if seconds is None else f"{seconds:g}s"
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"{self.prefix}-{part}-{maker}-{budget}-{digest}"

    def _grown(self, maker: str, part: str, seconds: float | None) -> Made:
        data, path = self.subject.splits.part(part), self._place(maker, part, seconds)
        if self.subject.f0.device.type == "cuda" and not path.exists():
            self._warm(maker, data)
        found = self._fuzz(maker, data, path, seconds)
        cases = found.load() if found.failures else _none(data.cases)
        told = {"found": found.failures, "distinct": found.distinct, "broken": found.broken, "tried": found.cases}
        return Made(cases, told | {"made_seconds": round(found.seconds, 2)})

    def _fuzz(self, maker: str, data: Data, folder: Path, seconds: float | None) -> Found:
        on_host = Data(data.name, data.cases.to("cpu"), data.spec)
        eps = self.subject.eps if maker == "noise" else None  # the tools have bounds of their own
        return fuzz(maker, self.subject.f0, on_host, folder=folder, time=seconds, seed=self.subject.seed, eps=eps)

    def _warm(self, maker: str, data: Data) -> None:
        if maker not in _WARM:
            _WARM.add(maker)
            self._fuzz(maker, data, self.folder / f"{self.prefix}-warm-{maker}-{time.time_ns()}", WARM)

    def _fooling(self, seconds: float, most: int) -> Made:
        """What the attack makes, kept as the runs of tools are."""
        path = self._place("attack", "train", seconds)
        if not path.exists():
            made = self._attacked(seconds)
            some = self._some(made.cases, most, "attack").to("cpu")
            columns = {"x": some.x, "y": some.y, "origin": some.origin, **some.info}
            path.with_name(f"{path.name}.json").write_text(json.dumps(made.told), encoding="utf-8")
            path.write_bytes(encode(columns))
        columns = decode(path.read_bytes())
        cases = Cases(columns.pop("x"), columns.pop("y"), columns.pop("origin"), columns)
        return Made(cases, json.loads(path.with_name(f"{path.name}.json").read_text(encoding="utf-8")))

    def _attacked(self, seconds: float) -> Made:
        """PGD examples of random training images that fool the plain net, pass after pass with other random starts."""
        subject = self.subject
        train = subject.part("train")
        batch = BATCH.get(train.x.device.type, 512)
        parts, tried, sweep, order = list[Cases](), 0, 0, torch.zeros(0, dtype=torch.long)
        if train.x.is_cuda:
            subject.attacked(subject.f0, train[:batch], POOL[1], subject.rng.at("rq3", "warm"))
        started = time.perf_counter()
        while time.perf_counter() - started < seconds:
            rng = subject.rng.at("rq3", "attack", sweep)
            if not len(order):
                order = torch.randperm(len(train), generator=rng.generator()).to(train.x.device)
                sweep += 1
            some, order = order[:batch], order[batch:]
            made = subject.attacked(subject.f0, train[some], POOL[1], rng)
            pred = subject.predicted(subject.f0, made)
            parts.append(made.note(pred=pred)[pred != made.y])
            tried += len(some)
        spent = time.perf_counter() - started
        every = Cases.cat(parts)
        pairs = (every.origin * len(train.y.unique()) + every.info["pred"]).unique()
        told = {"found": len(every), "distinct": len(pairs), "broken": len(every.origin.unique()), "tried": tried}
        return Made(every, told | {"made_seconds": round(spent, 2)})

    def _some(self, cases: Cases, most: int, name: str) -> Cases:
        """At most so many, in random order."""
        order = torch.randperm(len(cases), generator=self.subject.rng.at("made", name).generator())[:most]
        return cases[order.to(cases.x.device)]


_WARM: set[str] = set()


def recipe(maker: str, eps: float) -> dict[str, Any]:
    """The stages of a tool, all parameters set; of the attack, its own text."""
    if maker == "attack":
        return {"attack": POOL[1]}
    return resolve(maker, {}, ball_of(eps if maker == "noise" else None, None)).config()


def moved(cases: Cases) -> dict[str, float]:
    """How far cases lie from their seeds, in the median."""
    if not len(cases):
        return {}
    delta = (cases.x - cases.info["seed_x"].to(cases.x.device)).flatten(1)
    length = cases.info["seed_x"].to(cases.x.device).flatten(1).norm(dim=1)
    sizes: dict[str, Callable[[], Tensor]] = {
        "linf": lambda: delta.abs().amax(1),
        "l2": lambda: delta.norm(dim=1),
        "relative": lambda: delta.norm(dim=1) / length,
    }
    return {name: round(float(size().median()), 4) for name, size in sizes.items()}


def share(right: Tensor) -> float | None:
    return round(float(right.double().mean()), 5) if len(right) else None


def _none(like: Cases) -> Cases:
    return like[:0].note(seed_x=like.x[:0])
