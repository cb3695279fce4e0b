"""What the checks look at: a sample of the inputs, and answers that several checks share.

A probe runs when a check first asks for it, and once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from assay.core import norms
from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.norms import Norm
from assay.core.randomness import Rows, Stream
from assay.core.registry import Bound
from assay.core.stats import wilson
from assay.engines.evaluation import Outcome, Share
from assay.subjects.asked import Asked
from assay.subjects.hurried import hurried
from assay.subjects.target import Target, answer

SAMPLE = 64  # inputs looked at
FEW = 32  # of them, rightly classified, for probes with gradients
ASKED = 16  # times the same inputs are asked: a net that tosses one coin a batch escapes once in 32 000
ASKED_BLACK_BOX = 4  # where every query may cost
SOME = 0.02  # of the range of the inputs: how far probes go where the evaluation has no eps

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Ball:
    """Where attacks may go."""

    eps: float
    norm: Norm


@dataclass(frozen=True, slots=True)
class Facts:
    """What an evaluation has measured and with what; where only checks are made, there are no outcomes."""

    clean: Share
    attacks: Mapping[str, Bound]
    ball: Ball | None
    outcomes: Mapping[str, Outcome]
    worst: Share | None
    cascade: bool


class Look:
    """One look at one target."""

    def __init__(self, target: Target, cases: Cases, facts: Facts, rng: Stream) -> None:
        self.target, self.cases, self.facts, self.rng = target, cases, facts, rng
        self.chunks = Chunks(SAMPLE)
        self._found: dict[Callable[[Look], Any], Any] = {}

    def once(self, probe: Callable[["Look"], Found]) -> Found:
        """What the probe finds; it runs for the first check that asks."""
        if probe not in self._found:
            self._found[probe] = probe(self)
        found: Found = self._found[probe]
        return found

    @cached_property
    def sample(self) -> Cases:
        """Inputs from all over the data, which may be sorted by class."""
        return spread(self.cases, SAMPLE).to(self.target.device)

    @cached_property
    def scores(self) -> Tensor:
        """Answers to the sample, (N, K)."""
        return self.ask(self.sample.x)

    @cached_property
    def right(self) -> Cases:
        """The rightly classified inputs of the sample."""
        return self.sample[self.scores.argmax(1) == self.sample.y]

    @cached_property
    def few(self) -> Cases:
        """Those of them that gradients are taken of."""
        return spread(self.right, FEW)

    @property
    def white_box(self) -> bool:
        return "grad" in self.target.gives

    @property
    def module(self) -> nn.Module | None:
        """The net itself, where there is one."""
        module = getattr(self.target, "module", None)
        return module if isinstance(module, nn.Module) else None

    @cached_property
    def maker(self) -> Target:
        """Whom attacks search: as the evaluation's do."""
        return hurried(self.target, amp=False, compiled=False, rows=SAMPLE, replay=True)

    def ask(self, x: Tensor) -> Tensor:
        """Scores without gradients, (N, K)."""
        return answer(self.target, x, self.chunks)

    def rows(self, cases: Cases, name: str) -> Rows:
        """Random numbers of these cases for that purpose."""
        return self.rng.at(name).rows(cases.origin.to(self.target.device))

    def attacked(self, attack: Bound, cases: Cases) -> Tensor:
        """What the attack makes of the cases, (N, *shape)."""
        key = self.rows(cases, attack.text).key

        def work(x: Tensor, y: Tensor, key: Tensor) -> Tensor:
            made: Tensor = attack(self.maker, x, y, rng=Rows(key))
            return made

        return self.chunks.map(work, cases.x, cases.y, key) if len(cases) else cases.x

    def still_right(self, x: Tensor, cases: Cases) -> Cases:
        """The cases whose class survives in ``x``."""
        scores = self.ask(x)
        return cases[(scores.argmax(1) == cases.y) & scores.isfinite().all(1)]

    def left_by(self, attack: Bound, cases: Cases) -> Cases:
        """The cases that the attack does not break."""
        return self.still_right(self.attacked(attack, cases), cases)

    @property
    def near(self) -> Ball:
        """The ball of the evaluation, or a small one where it has none."""
        low, high = self.target.spec.bounds
        return self.facts.ball or Ball(SOME * (high - low), "linf")

    def noisy(self, cases: Cases) -> Tensor:
        """A random point of the ball around each case, inside the bounds."""
        shape, near = tuple(cases.x.shape[1:]), self.near
        offset = norms.random_point(shape, near.eps, near.norm, self.rows(cases, "noise"))
        return (cases.x + offset.to(cases.x.dtype)).clamp(*self.target.spec.bounds)

    @cached_property
    def grain(self) -> float:
        """How far answers may differ for no other reason than rounding, as a share of the spread of a row's scores."""
        if self.module is not None:
            kinds = {p.dtype for p in self.module.parameters()}
            if not kinds.isdisjoint((torch.float16, torch.bfloat16)):
                return 3e-2
        return 1e-4 if self.target.device.type == "cpu" else 3e-3  # convolutions on CUDA round to TF32

    def unlike(self, one: Tensor, other: Tensor) -> Tensor:
        """Which rows of scores differ by more than rounding, (N,)."""
        gap = (one.nan_to_num() - other.nan_to_num()).abs().amax(1)
        return gap > self.grain * width(one)

    @cached_property
    def restless(self) -> int:
        """How many of 16 inputs, half of them noisy, get different answers when they are asked again and again.

        A black box is not asked again: what its repeats showed counts.
        """
        if isinstance(self.target, Asked):
            return self.target.unsteady
        some = spread(self.sample, 8)
        x = torch.cat([some.x, self.noisy(some)])
        first = self.ask(x)
        changed = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        for _ in range(1, ASKED if self.white_box else ASKED_BLACK_BOX):
            changed |= self.unlike(first, self.ask(x))
        return int(changed.sum())

    @cached_property
    def swayed(self) -> int:
        """How many inputs of the sample are answered otherwise among other neighbours.

        Each half is asked beside itself, so that the batch keeps its size: another one may take other kernels.
        """
        cut = len(self.sample) // 2
        if not cut or isinstance(self.target, Asked):  # whose answers stand in a book
            return 0
        first = self.ask(self.sample.x[: 2 * cut])
        count = 0
        for part in (slice(0, cut), slice(cut, 2 * cut)):
            x = self.sample.x[part]
            count += int(self.unlike(first[part], self.ask(torch.cat([x, x]))[:cut]).sum())
        return count

    @property
    def steady(self) -> bool:
        """Whether answers can be compared at all: the same input, the same answer."""
        return not self.restless and not self.swayed


def width(scores: Tensor) -> Tensor:
    """The spread of each row's scores, (N,)."""
    clean = scores.nan_to_num()
    return clean.amax(1) - clean.amin(1)


def spread(cases: Cases, most: int) -> Cases:
    """At most so many cases, evenly from all of them."""
    if len(cases) <= most:
        return cases
    return cases[torch.linspace(0, len(cases) - 1, most, device=cases.x.device).round().long()]


def beyond(hits: int, n: int, share: float) -> bool:
    """Whether so many hits say, with 95 % confidence, that the share is larger than ``share``."""
    return wilson(hits, n)[0] > share
