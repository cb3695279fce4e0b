"""Static examples as the paper's code makes them: the smallest change that fools, by one step, by climbs, by stages.

The public code calls foolbox 2 with its defaults. FGSM, BIM and PGD are written out here because each row has an eps of
its own; JSMA and C&W are our stages.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from assay.core import norms
from assay.core.aims import aim
from assay.core.cases import Cases
from assay.core.shapes import column
from assay.engines.attack import attack
from assay.stages.attacks.gradient import uphill
from assay.subjects.target import Target
from papers.dare_subject import Subject

ATTACKS = ("fgsm", "bim", "pgd", "jsma", "cw")
SLOW = ("jsma", "cw")  # of these there are fewer examples
GRID = 1000  # eps of FGSM, evenly up to the whole range
_AIM = aim("ce", "top", False)


@dataclass(frozen=True, slots=True)
class Bisected:
    """A climb from the input itself, with eps bisected row by row.

    ``norm="l1"`` is foolbox's: steps along the gradient over the mean of its absolute values, and eps is the mean
    absolute change of an entry. Foolbox: 20 tries to grow eps where it is too small, then 20 bisections. Here:
    ``searches`` of both together, because the upper end is the size of the smallest success seen, which is far below
    the eps it was tried with.
    """

    norm: str
    steps: int
    eps: float = 0.3
    step: float = 0.1  # as a share of eps
    searches: int = 7

    def __call__(self, target: Target, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        best, least = x.clone(), x.new_full((len(x),), torch.inf)
        low, high = torch.zeros_like(least), torch.full_like(least, torch.inf)
        now = torch.full_like(least, self.eps)
        for _ in range(self.searches):
            made, hit = self._climbed(target, x, y, now)
            size = norms.size(made - x, "l2")
            better = hit & (size < least)
            best, least = torch.where(column(better, x), made, best), torch.where(better, size, least)
            high = torch.where(hit, torch.minimum(high, self._reach(made - x)), high)
            low = torch.where(hit, low, now)
            now = torch.where(high.isfinite(), (low + high) / 2, now * 1.5)
        return best, least.isfinite()

    def _climbed(self, target: Target, x: Tensor, y: Tensor, eps: Tensor) -> tuple[Tensor, Tensor]:
        """Where each row first fools the target, (N, *shape), and whether it does."""
        out, hit = x.clone(), torch.zeros_like(y, dtype=torch.bool)
        rows, at = torch.arange(len(x), device=x.device), x.clone()
        for step in range(self.steps + 1):
            outputs, _, grad = uphill(target, at, y, _AIM)
            won = _AIM.hit(outputs, y)
            out[rows[won]], hit[rows[won]] = at[won], True
            on = (~won).nonzero().squeeze(1)
            if step == self.steps or not len(on):
                break
            rows, x, y, eps, at, grad = (t[on] for t in (rows, x, y, eps, at, grad))
            moved = at + column(self.step * eps, x) * self._direction(grad)
            at = (x + self._inside(moved - x, eps)).clamp_(*target.spec.bounds)
        return out, hit

    def _direction(self, grad: Tensor) -> Tensor:
        if self.norm == "linf":
            return norms.steepest(grad, "linf")
        flat = norms.scaled(grad.flatten(1))
        return (flat / flat.abs().mean(1, keepdim=True).clamp_min(1e-12)).view_as(grad)

    def _inside(self, delta: Tensor, eps: Tensor) -> Tensor:
        if self.norm == "linf":
            return norms.project(delta, eps, "linf")
        return delta * column((eps / self._reach(delta).clamp_min(1e-12)).clamp_max(1), delta)

    def _reach(self, delta: Tensor) -> Tensor:
        """The size that eps bounds, (N,)."""
        return norms.size(delta, "linf") if self.norm == "linf" else delta.flatten(1).abs().mean(1)


CLIMBS = {
    "bim": Bisected("l1", steps=10, step=1 / 6),  # step 0.05
    "pgd": Bisected("linf", steps=40, step=1 / 30),  # step 0.01
}


def stages(data: str) -> dict[str, str]:
    """The attacks that are ours; JSMA may change a tenth of the entries, of colour images half as many."""
    gamma = 0.05 if data in ("cifar10", "svhn") else 0.1
    return {"jsma": f"jsma(theta=0.1, gamma={gamma})", "cw": "cw"}


def protocol(data: str) -> dict[str, Any]:
    """What of this is part of a row."""
    return {"fgsm": f"first of {GRID} eps", **{name: asdict(how) for name, how in CLIMBS.items()}, **stages(data)}


def first_step(target: Target, x: Tensor, y: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """FGSM with the smallest eps of the grid that fools, and whether there is one; ``most`` rows at a time are asked.

    One gradient; then the grid from below, as many of its eps at once as there is room for, until a row is through.
    """
    low, high = target.spec.bounds
    direction = norms.steepest(uphill(target, x, y, _AIM)[2], "linf") * (high - low)
    out, hit = x.clone(), torch.zeros_like(y, dtype=torch.bool)
    left, done = torch.arange(len(x), device=x.device), 0
    while len(left) and done < GRID:
        wide = min(max(1, most // len(left)), GRID - done)
        eps = torch.arange(done + 1, done + wide + 1, device=x.device, dtype=x.dtype) / GRID
        tried = eps.view(1, -1, *[1] * (x.dim() - 1)) * direction[left, None]
        tried = (tried + x[left, None]).clamp_(low, high)
        with torch.no_grad():
            wrong = _AIM.hit(target(tried.flatten(0, 1)), y[left].repeat_interleave(wide)).view(-1, wide)
        first, found = wrong.int().argmax(1), wrong.any(1)
        got = left[found]
        out[got], hit[got] = tried[found, first[found]], True
        left, done = left[~found], done + wide
    return out, hit


def made(subject: Subject, cases: Cases, name: str) -> Cases:
    """An example of each case against the original net, its clean parent beside it; ``fooling`` tells successes."""
    target, chunks, own = subject.target, subject.chunks, stages(subject.data)
    if name in own:
        x = attack(own[name], target, cases.x, cases.y, seed=subject.seed, batch=chunks.size).x
    else:

        def work(x: Tensor, y: Tensor) -> Tensor:
            return (first_step(target, x, y, chunks.size) if name == "fgsm" else CLIMBS[name](target, x, y))[0]

        with target.ready():
            x = chunks.map(work, cases.x, cases.y) if len(cases) else cases.x
    some = Cases(x, cases.y, cases.origin, {"seed_x": cases.x})
    return some.note(fooling=~subject.right(target, some))


@dataclass(frozen=True, slots=True)
class Examples:
    """Examples that fool the original net, by attack: of test images to measure with, of training ones to learn."""

    test: Mapping[str, Cases]
    learn: Mapping[str, Cases]
    told: Mapping[str, Mapping[str, float]]


def examples(subject: Subject, counts: Mapping[str, tuple[int, int]]) -> Examples:
    """Examples of the first images that the net gets right; ``counts``: of test images and of training ones."""
    test: dict[str, Cases] = {}
    learn: dict[str, Cases] = {}
    told: dict[str, Mapping[str, float]] = {}
    for name, (first, second) in counts.items():
        parts = [subject.part(part)[:n] for part, n in (("test", first), ("train", second))]
        parts = [some[subject.right(subject.target, some)] for some in parts]
        both = made(subject, Cases.cat(parts), name)  # at once: a large batch costs little more than a small one
        ours, theirs = both[: len(parts[0])], both[len(parts[0]) :]
        test[name], learn[name] = (some[some.info["fooling"]] for some in (ours, theirs))
        told[name] = described(test[name], len(ours)) | {"learn": len(learn[name])}
    return Examples(test, learn, told)


def described(cases: Cases, tried: int) -> dict[str, float]:
    """How many of those tried succeed, and how large the changes are in the mean."""
    delta = cases.x - cases.parent
    told: dict[str, float] = {"tried": tried, "fooling": len(cases)}
    known: tuple[norms.Norm, ...] = ("linf", "l2", "l0") if len(cases) else ()
    return told | {norm: float(f"{float(norms.size(delta, norm).mean()):.5g}") for norm in known}
