"""What a stage asks of the model, by counting: inputs answered and gradients taken, for each input that is tested.

The target is the simplest with a boundary: bright images are of one class, dark ones of another.
An input far from the boundary withstands every attack of the ball, so that its cost is the most there is; one near it
falls. Counts depend on no clock and no machine.
"""

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import Bound, bind
from assay.subjects.bench import Bench, Data
from assay.subjects.observer import Observer
from assay.subjects.sources.module import ModuleTarget

SHAPE, CLASSES, ROWS, HIDDEN = (1, 8, 8), 10, 4, 12
QUERIES = 300  # of attacks with a budget of queries, whose defaults would take minutes
EPS = {"linf": 0.1, "l2": 1.0, "l1": 4.0, "l0": 6.0}
FAR, NEAR = 0.1, 0.46  # brightness of an input that withstands, and of one that falls; the boundary is at 0.5
COUNTED = ("attack", "mutator", "oracle", "score", "filter")  # kinds whose stages are asked about cases directly


class _Brightness(nn.Module):
    """Ten scores: dark, bright, and eight that never win; counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(0)
        sums, weight = torch.randn(HIDDEN, 64, generator=rng) * 0.1, torch.randn(CLASSES, HIDDEN, generator=rng) * 0.1
        sums[0] = 1.0
        weight[0], weight[1] = 0.0, 0.0
        weight[0, 0], weight[1, 0] = -0.5, 0.5
        self.hidden, self.drop, self.head = nn.Linear(64, HIDDEN), nn.Dropout(0.2), nn.Linear(HIDDEN, CLASSES)
        with torch.no_grad():
            self.hidden.weight.copy_(sums)
            self.hidden.bias.zero_()
            self.head.weight.copy_(weight)
            self.head.bias.copy_(torch.tensor([16.0, -16.0] + [-20.0] * (CLASSES - 2)))
        self.answered = self.climbed = 0

    def forward(self, x: Tensor) -> Tensor:
        self.answered += len(x)
        out: Tensor = self.head(self.drop(self.hidden(x.flatten(1))))
        if out.requires_grad:
            out.register_hook(self._back)
        return out

    def _back(self, grad: Tensor) -> None:
        self.climbed += len(grad)


@dataclass(frozen=True, slots=True)
class Passes:
    """Inputs answered and gradients taken, for each input."""

    answers: float
    gradients: float

    def __str__(self) -> str:
        told = [f"{_short(n)} {word}{'' if n == 1 else 's'}" for n, word in self._counted() if n]
        return " and ".join(told) or "none"

    def _counted(self) -> tuple[tuple[float, str], ...]:
        return (self.answers, "forward pass" if self.answers == 1 else "forward passe"), (self.gradients, "gradient")


def _short(count: float) -> str:
    return f"{count:.0f}" if count == round(count) else f"{count:.1f}"


def _inputs(brightness: float) -> Cases:
    rng = torch.Generator().manual_seed(1)
    x = brightness + 0.02 * (torch.rand(ROWS, *SHAPE, generator=rng) - 0.5)
    return Cases.of(x, torch.zeros(ROWS, dtype=torch.int64))


def _target() -> tuple[_Brightness, ModuleTarget]:
    net = _Brightness()
    return net, ModuleTarget(net, InputSpec(SHAPE, (0.0, 1.0), tuple(map(str, range(CLASSES)))))


def of_attack(name: str, brightness: float) -> Passes:
    """What the attack asks about each of a few inputs, with its defaults."""
    attack = measured(name)
    net, target = _target()
    cases = _inputs(brightness)
    attack(target, cases.x, cases.y, rng=Stream(0).rows(cases.origin))
    return Passes(net.answered / ROWS, net.climbed / ROWS)


def measured(name: str) -> Bound:
    """The attack as it is measured: with its defaults, but a budget of queries that takes seconds."""
    usual = _bound("attack", name)
    few = {"queries": QUERIES} if "queries" in usual.params else {}
    return bind("attack", name, few, {"eps": usual.params.get("eps"), "norm": usual.params.get("norm")})


def _bound(kind: str, name: str) -> Bound:
    norm = str(bind(kind, name, {}, {"eps": 0.1}).params.get("norm") or "linf")
    return bind(kind, name, {}, {"eps": EPS[norm], "norm": norm})


def of_stage(kind: str, name: str) -> Passes | None:
    """What the stage asks for each case beyond what the engine hands it; None where it has to be fitted first."""
    bound = _bound(kind, name)
    if "start" in bound.entry.needs:
        return None
    bench, net, cases = _bench()
    extra: dict[str, Any] = {"rng": Stream(0).rows(cases.origin)} if kind == "mutator" else {}
    try:
        bound(bench, cases, **extra)
        net.answered = net.climbed = 0  # what is fitted once, on the training data, is behind us
        bound(bench, cases, **extra)
    except UsageError:
        return None  # it is of use in a recipe of its own alone
    return Passes(net.answered / ROWS, net.climbed / ROWS)


def _bench() -> tuple[Bench, _Brightness, Cases]:
    net, target = _target()
    others = {"sibling1": _target()[1], "vulnerable": _target()[1]}
    cases = _noted(_inputs(NEAR))
    training = Data("train", _training(), target.spec)
    observer = Observer.of([target, *others.values()], "auto", ends=True)
    coverage = bind("criterion", "nc", {})().begin(observer, None)
    kept = {"coverage": coverage, "levels": {"ssim": 0.05, "tenengrad": 60.0, "close": 0.7}}
    return Bench(target, others, observer=observer, training=training, kept=kept), net, cases


@functools.cache
def _training() -> Cases:
    rng = torch.Generator().manual_seed(2)
    x = torch.rand(60, *SHAPE, generator=rng) * 0.3 + torch.tensor([0.1, 0.6]).repeat(30).view(-1, 1, 1, 1)
    return Cases.of(x, torch.tensor([0, 1]).repeat(30))


def _noted(cases: Cases) -> Cases:
    """With the columns that the fuzzing engine has at hand when it asks a stage."""
    zero, number = torch.zeros(len(cases), dtype=torch.int64), torch.full((len(cases),), 0.5)
    columns = {"seed_x": cases.x, "before_x": cases.x * 0.9, "start_x": cases.x, "slope": torch.ones_like(cases.x)}
    scores = dict.fromkeys(("fol", "best_fol", "line_cosine", "line_root", "active", "parent_active"), number)
    counts = dict.fromkeys(("step", "hits", "gain", "mined"), zero)
    chosen = {"pushed": torch.tensor([[0, 1]]).repeat(len(cases), 1), "signs": torch.ones(len(cases), 2)}
    return cases.note(row=torch.arange(len(cases)), opening=zero.bool(), **columns, **scores, **counts, **chosen)
