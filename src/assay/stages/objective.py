"""Looking at cases: one evaluation gives the target's answer, the scores, and the slope that mutators climb.

A slope of FOL holds the gradient of a gradient, a product of the Hessian with a vector v. Three ways give it:
``double`` differentiates the gradient's graph; ``forward`` pushes v through the gradient by forward differentiation;
``linear`` computes J'S(Jv), with S the curvature of the loss in the logits, which is exact where the net is piecewise
linear and wrong elsewhere. Which is fastest depends on net and device, so an engine times those that agree. (A central
difference of gradients is no fourth way: on ReLU nets it sees the kinks, not the curvature.)
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from assay.core import norms
from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.losses import cross_entropy
from assay.core.randomness import Rows
from assay.core.registry import Bound
from assay.core.shapes import column
from assay.stages.coverage import Coverage
from assay.stages.strategies import PUSHED, Chooser
from assay.subjects.bench import Bench
from assay.subjects.observer import COLUMNS

log = logging.getLogger("assay")

CURVATURES = ("double", "forward", "linear")
AGREEMENT = 0.999  # cosine with ``double`` that another way must reach on every case but one in a hundred
STRIDES = (0.1, 0.2)  # in lengths of the seed: it is asked there too, for a curved net bends on the way


@dataclass(frozen=True, slots=True)
class Look:
    """What to see of a case. Without an objective there is no slope, and no gradient is taken."""

    objective: Mapping[str, Bound] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    scores: Mapping[str, Bound] = field(default_factory=dict)
    curvature: str = "double"
    chooser: Chooser | None = None
    coverage: Coverage | None = None

    def __call__(self, bench: Bench, cases: Cases) -> Cases:
        """The cases with the columns ``logits``, one for each score, and ``slope`` where there is an objective.

        Where the bench has an observer, what it sees comes with them; where there is a chooser, what it pushes.
        """
        seen_of = ("logits",) if bench.observer is None else COLUMNS
        pushed = () if self.chooser is None else PUSHED
        names = (*seen_of, *pushed, *self.scores, *(("slope",) if self.objective else ()))
        told = {name: column for name, column in cases.info.items() if name in PUSHED or name not in names}

        def see(x: Tensor, y: Tensor, origin: Tensor, *columns: Tensor) -> tuple[Tensor, ...]:
            block = Cases(x, y, origin, dict(zip(told, columns, strict=True)))
            seen = self._see(bench, block.to(bench.target.device))
            return tuple(seen[name] for name in names)

        seen = bench.chunks.map_all(see, cases.x, cases.y, cases.origin, *told.values())
        return cases.note(**dict(zip(names, seen, strict=True)))

    def _see(self, bench: Bench, cases: Cases) -> dict[str, Tensor]:
        if not self.objective:
            with torch.no_grad():
                cases = cases.note(**_asked(bench, cases.x))
            return dict(cases.info) | self._values(self.scores, bench, cases)
        x = cases.x.detach().requires_grad_()
        with torch.enable_grad():
            told = _asked(bench, x)
            logits = told["logits"]
            view = cases.with_x(x).note(**told)
            if "opening" in cases.info:  # the seed itself is looked at: this is the answer to it
                first = torch.where(at_seed(cases)[:, None], logits.detach(), cases.info["seed_logits"])
                view = view.note(seed_logits=first)
            if self.chooser is not None:
                view = view.note(**self._pushed(bench, view))
            bent = any("grad" in bound.entry.needs for bound in (*self.objective.values(), *self.scores.values()))
            if bent:
                loss = cross_entropy(logits, cases.reference).sum()
                double = self.curvature == "double"
                (gradient,) = torch.autograd.grad(loss, x, create_graph=double, retain_graph=True)
                view = view.note(gradient=gradient if double else gradient.requires_grad_())
            parts = self._values(self.objective, bench, view)
            total = torch.stack([self.weights[name] * part for name, part in parts.items()]).sum()
            slope = self._slope(bench, view, total) if bent else torch.autograd.grad(total, x)[0]
        seen = {name: part.detach() for name, part in parts.items() if self.objective[name] == self.scores.get(name)}
        still = view.with_x(x.detach()).note(
            **{n: view.info[n].detach() for n in (*told, "gradient") if n in view.info}
        )
        others = {name: bound for name, bound in self.scores.items() if name not in seen}
        with torch.no_grad():
            seen |= self._values(others, bench, still)
        return {**still.info, "slope": slope, **seen}

    def _pushed(self, bench: Bench, view: Cases) -> dict[str, Tensor]:
        """The neurons to push: chosen anew where a case is looked at before it steps, else those of the step before."""
        opening = view.info["opening"]
        if not opening.is_cuda and not bool(opening.any()):  # on a GPU looking would wait for it
            return {}
        assert self.chooser is not None
        assert self.coverage is not None  # a recipe with a strategy has a criterion
        here = bench.seen(view).detach()
        chosen = self.chooser.choose(view.with_x(view.x.detach()), here, self.coverage, Rows(view.info["key"]))
        columns = zip(PUSHED, chosen, strict=True)
        return {n: torch.where(opening[:, None], new.to(view.info[n].dtype), view.info[n]) for n, new in columns}

    def _slope(self, bench: Bench, view: Cases, total: Tensor) -> Tensor:
        """The gradient of the objective in x, through the loss's gradient too."""
        x, gradient, logits = view.x, view.info["gradient"], view.info["logits"]
        if self.curvature == "double":
            return _grad(total, x)
        v = _grad(total, gradient, keep=True)
        if self.curvature == "forward":
            return _grad(total, x) + _hessian_product(bench, x, view.reference, v)
        with forward_ad.dual_level(), torch.no_grad():
            pushed = forward_ad.unpack_dual(bench.target(forward_ad.make_dual(x.detach(), v))).tangent
        (pull,) = torch.autograd.grad(cross_entropy(logits, view.reference).sum(), logits, create_graph=True)
        return torch.autograd.grad(total + (pull * pushed).sum(), x)[0]

    @staticmethod
    def _values(scores: Mapping[str, Bound], bench: Bench, cases: Cases) -> dict[str, Tensor]:
        return {name: score(bench, cases) for name, score in scores.items()}


def _grad(total: Tensor, x: Tensor, *, keep: bool = False) -> Tensor:
    """The gradient, 0 where there is none: an objective of FOL alone depends on x through the loss's gradient only."""
    return torch.autograd.grad(total, x, retain_graph=keep, allow_unused=True, materialize_grads=True)[0]


def at_seed(cases: Cases) -> Tensor:
    """Which rows are the seed itself, looked at before its first step, (N,)."""
    return cases.info["opening"] & (cases.info["step"] == 0)


def _asked(bench: Bench, x: Tensor) -> dict[str, Tensor]:
    """The answer to inputs, with all that the observer sees where there is one."""
    if bench.observer is None:
        return {"logits": bench.target(x)}
    seen = bench.observer(x)
    return {name: getattr(seen, name) for name in COLUMNS}


def _hessian_product(bench: Bench, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """The Hessian of the loss times v, by forward differentiation of the gradient."""
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.detach().requires_grad_(), v)
        (gradient,) = torch.autograd.grad(cross_entropy(bench.target(dual), y).sum(), dual)
        tangent: Tensor = forward_ad.unpack_dual(gradient).tangent
    return tangent.detach()


@dataclass(frozen=True, slots=True)
class Choice:
    """The way that was chosen, with the milliseconds each took on the batch it was tried on; None where it is wrong."""

    curvature: str
    milliseconds: Mapping[str, float | None]


def check_curvature(asked: str) -> None:
    if asked not in ("auto", *CURVATURES):
        raise UsageError(f"curvature is auto, {', '.join(CURVATURES)}; got {asked!r}")


def choose(look: Look, bench: Bench, cases: Cases, asked: str = "auto") -> Choice:
    """The fastest way that gives the slope of ``double`` on these cases; ``asked`` where the user names one."""
    check_curvature(asked)
    bent = any("grad" in bound.entry.needs for bound in look.objective.values())
    if not bent or not len(cases):
        return Choice("double" if asked == "auto" else asked, {})
    if asked != "auto":
        if asked != "double" and not _possible(look, bench, cases, asked):
            raise UsageError(f"curvature {asked} needs forward derivatives, which this net does not have; use double")
        return Choice(asked, {})
    took: dict[str, float | None] = {"double": _timed(look, bench, cases, "double")}
    for way in CURVATURES[1:]:
        fits = _possible(look, bench, cases, way) and _agree(look, bench, cases, way)
        took[way] = _timed(look, bench, cases, way) if fits else None
    best = min((seconds, way) for way, seconds in took.items() if seconds is not None)[1]
    return Choice(best, {way: None if s is None else round(1000 * s, 3) for way, s in took.items()})


def _possible(look: Look, bench: Bench, cases: Cases, way: str) -> bool:
    """Whether every operator of the net has a forward derivative; any other error is not ours to answer."""
    try:
        replace(look, curvature=way)(bench, cases[:1])
    except NotImplementedError as error:
        reason = str(error)
    except RuntimeError as error:
        reason = str(error)
        if "forward AD" not in reason and "jvp" not in reason:
            raise
    else:
        return True
    log.info("curvature %s is not possible: %s", way, reason.split("\n")[0])
    return False


def _timed(look: Look, bench: Bench, cases: Cases, way: str) -> float:
    """The least time of three after one that does not count."""
    way_of = replace(look, curvature=way)
    slope = way_of(bench, cases).info["slope"]
    least = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        way_of(bench, cases)
        if slope.is_cuda:
            torch.cuda.synchronize(slope.device)
        least = min(least, time.perf_counter() - began)
    return least


def _agree(look: Look, bench: Bench, cases: Cases, way: str) -> bool:
    """Whether the way gives the slope of ``double``, at the seeds and where steps would lead from them."""
    for stride in (*STRIDES, 0.0):
        slope, right = (replace(look, curvature=c)(bench, cases).info["slope"] for c in (way, "double"))
        if not _same(slope, right):
            return False
        length = column(norms.size(cases.x, "l2"), cases.x)
        moved = cases.x + stride * length * norms.steepest(right, "l2")
        cases = cases.with_x(moved.clamp(*bench.target.spec.bounds))
    return True


def _same(slope: Tensor, right: Tensor) -> bool:
    """Whether all but one case in a hundred point the same way, as far; a slope that vanishes has no direction."""
    one, other = slope.flatten(1).double(), right.flatten(1).double()
    lengths = one.norm(dim=1), other.norm(dim=1)
    there = lengths[1] > 0
    cosine = (one * other).sum(1)[there] / (lengths[0] * lengths[1])[there].clamp_min(1e-300)
    ratio = lengths[0][there] / lengths[1][there]
    good = (cosine > AGREEMENT) & ((ratio - 1).abs() < 0.01)
    return bool(good.double().mean() >= 0.99) if len(good) else True
