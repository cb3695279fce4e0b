"""What an evaluation will cost at most, from a short timing of the user's own model."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.losses import log_odds
from assay.core.registry import Bound
from assay.core.units import clock
from assay.subjects.target import Target, answer

# Parameters by which attacks, ours and users', say how often they ask. Their product bounds the passes of one input.
_GRADIENTS = ("steps", "restarts", "targets", "eot", "searches", "classes")
_FORWARDS = ("queries", "restarts")
SAMPLE = 64


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds an input for one forward pass and for one gradient, and seconds of the whole evaluation at most.

    ``unknown`` names the attacks whose parameters do not tell what they ask.
    """

    forward: float
    gradient: float
    at_most: float
    unknown: tuple[str, ...] = ()

    def __str__(self) -> str:
        rest = f", not counting {', '.join(self.unknown)}, whose cost is not known" if self.unknown else ""
        return (
            f"up to about {clock(self.at_most)}, if every input withstands every attack "
            f"({1000 * self.gradient:.2f} ms a gradient, {1000 * self.forward:.2f} ms an answer, an input){rest}"
        )


def most_asked(cases: Cases, attacks: Iterable[Bound]) -> int:
    """How many inputs an evaluation sends at most, as far as its attacks tell: each clean, attacked, and judged."""
    return len(cases) * (1 + sum(1 + (_passes(a, _FORWARDS) if a.entry.needs else 0) for a in attacks))


def estimate(target: Target, cases: Cases, attacks: Iterable[Bound]) -> Estimate:
    """Time the target on a few inputs and count what the attacks may ask of it."""
    sample = cases[:SAMPLE].to(target.device)

    chunks = Chunks(SAMPLE)

    def ask() -> None:
        answer(target, sample.x, chunks)

    def gradient_of(x: Tensor, y: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        loss = log_odds(target(x), y).sum()
        if loss.requires_grad:  # a net may cut its own graph; `checks` says so
            torch.autograd.grad(loss, x, allow_unused=True)
        return x.detach()

    def climb() -> None:
        chunks.map(gradient_of, sample.x, sample.y)

    n = max(1, len(sample))
    with target.ready(), torch.enable_grad():
        forward = _seconds(ask, target) / n
        gradient = _seconds(climb, target) / n if "grad" in target.gives else 0.0
    known: list[Bound] = []
    unknown: list[Bound] = []
    for attack in attacks:
        told = attack.entry.gradients or any(name in attack.params for name in (*_GRADIENTS, *_FORWARDS))
        (known if told else unknown).append(attack)
    per_input = sum(_passes(a, _FORWARDS) * forward + _passes(a, _GRADIENTS) * gradient for a in known)
    silent = tuple(dict.fromkeys(a.entry.name for a in unknown if a.entry.needs))
    return Estimate(forward, gradient, per_input * len(cases), silent)


def _passes(attack: Bound, names: tuple[str, ...]) -> int:
    """How many passes of a kind one input takes at most, as far as the attack's parameters tell."""
    if names is _GRADIENTS and "grad" not in attack.entry.needs:
        return 0
    if names is _FORWARDS and "grad" in attack.entry.needs:
        return 0
    return prod(v for n in names if isinstance(v := attack.params.get(n), int) and not isinstance(v, bool) and v > 0)


def _seconds(work: Callable[[], None], target: Target) -> float:
    """The shorter of two runs, after one that warms up."""
    times = []
    for _ in range(3):
        if target.device.type == "cuda":
            torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        if target.device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return min(times[1:])
