"""The attacks inside a training: several in turn, against the net as it is, and what it withstands of them."""

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import Bound
from assay.core.specs import split
from assay.stages.attacks.untargeted import untargeted
from assay.stages.trainers.growth import Growth, grown
from assay.stages.trainers.inner import Inner
from assay.stages.trainers.loop import Batch, Judge, Moment, Task, accuracy, fit
from assay.stages.trainers.plain import joined
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.watch import Watch
from assay.subjects.bench import Splits
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import Target

SURE = "pgd(steps=10, step=0.25, early_stop=false)"  # what judges a training whose own search does not
VALIDATED = 1000  # validation cases attacked after each epoch
GLANCE = 5  # of so many of them one is attacked besides while balls grow, in the ball as it is
STEPS = 20  # of a better search than trainings have, which epochs are chosen by
BETTER = {"linf": f"apgd_ce(steps={STEPS})", "l2": f"apgd_ce(steps={STEPS})", "l1": f"pgd(steps={STEPS}, step=0.2)"}


@dataclass(slots=True)
class _Epoch:
    """How the searches of an epoch were: the ball that it began with, the smallest, and how many times the steps."""

    rng: Stream | None = None
    ball: float = 1.0
    times: int = 1


class Searches:
    """The attacks of a comma list, each with the ball of the training unless it names its own.

    Each makes an equal part of every batch; batches are drawn anew in each epoch, and so every case meets all of them.
    """

    def __init__(self, attacks: str, module: nn.Module, spec: InputSpec, *, eps: float, norm: str, batch: int) -> None:
        self.spec, self.inner, self.start = spec, Inner(spec), ModuleTarget(module, spec)
        self.eps, self.norm = eps, norm
        self.chunks = Chunks(max(batch, VALIDATED), alone=True)  # attacks take more memory than answers
        self.all = self._read(attacks)
        self.epoch = _Epoch()  # shared by all that come of these: what the batches of one say to who judges it

    def _read(self, attacks: str) -> list[Bound]:
        found = [untargeted(one, self.start, eps=self.eps, norm=self.norm, who="a trainer") for one in split(attacks)]
        if not found:
            raise UsageError('this trainer learns from attacks; name one or more: attack="pgd(steps=10, step=0.25)"')
        return found

    def _of(self, attacks: list[Bound]) -> "Searches":
        """Other attacks on the same nets."""
        other = copy.copy(self)
        other.all = attacks
        return other

    def instead(self, attacks: str) -> "Searches":
        """These attacks in the same ball."""
        return self._of(self._read(attacks))

    def climbing(self, **params: Any) -> "Searches":
        """The same with other parameters of the attacks that know them; refused where none does."""
        knows = [params.keys() <= {p.name for p in search.entry.parameters} for search in self.all]
        if not any(knows):
            first, names = self.all[0].entry, ", ".join(sorted(params))
            raise UsageError(f"attack {first.name!r} has no {names}, which this trainer sets; take pgd")
        both = zip(self.all, knows, strict=True)
        return self._of([replace(one, params={**one.params, **params}) if known else one for one, known in both])

    def at(self, moment: Moment, growth: Growth) -> "Searches":
        """The same as they are at that moment of a training."""
        ball, times = growth.ball(moment.progress), growth.times(moment.log)
        if moment.rng != self.epoch.rng:
            self.epoch.rng, self.epoch.ball, self.epoch.times = moment.rng, ball, times
        return self if ball >= 1 and times == 1 else self._of([grown(one, ball, times) for one in self.all])

    def target(self, net: nn.Module, x: Tensor, here: Stream) -> Target:
        """Whom they attack: the net as it is now, at this place of the training."""
        return self.inner.of(net, x, here)

    def made(
        self, net: nn.Module, x: Tensor, y: Tensor, ids: Tensor, rng: Stream, aims: Tensor | None = None
    ) -> Tensor:
        """What the attacks make of a batch, each of its part; ``aims`` are what a loss that was set refers to."""
        target, count = self.target(net, x, rng), min(len(self.all), max(len(x), 1))
        split = (column.tensor_split(count) for column in (x, y, ids, y if aims is None else aims))
        made = [
            self._by(place, target, x, aims if callable(self.all[place].params.get("loss")) else y, ids, rng)
            for place, (x, y, ids, aims) in enumerate(zip(*split, strict=True))
        ]
        return torch.cat(made).detach()

    def _by(self, place: int, target: Target, x: Tensor, aims: Tensor, ids: Tensor, rng: Stream) -> Tensor:
        def work(x: Tensor, aims: Tensor, ids: Tensor) -> Tensor:
            return self.inner.made(self.all[place], target, x, aims, rng.rows(ids))

        return self.chunks.map(work, x, aims, ids)

    def learn(
        self,
        module: nn.Module,
        data: Splits,
        extra: Cases | None,
        plan: Plan,
        batch: Batch,
        *,
        rng: Stream,
        watch: Watch,
        task: Task | None = None,
        growth: Growth = Growth(),
        each: float = 0.0,
    ) -> nn.Module:
        """The module trained on such batches; best epoch by what it withstands of these attacks and of a better one.

        ``each`` is what learning from a case takes, in steps of a search; where it is 0, these attacks and one more.
        """
        growth.check(self.all)
        train, val = joined(data, extra), data.part("val").cases
        return fit(
            module, train, val, plan, rng=rng, watch=watch, batch=batch, judge=self.judge(rng, growth), task=task,
            judging=self.judging(val, each, growth), cost=lambda log: 1 + self._steps(growth.times(log)),
        )  # fmt: skip

    def _steps(self, times: int = 1) -> float:
        """The steps of these searches, on the mean, where they have so many times their first ones."""
        return sum(float(grown(one, 1.0, times).params.get("steps", 1)) for one in self.all) / len(self.all)

    def judging(self, val: Cases, each: float = 0.0, growth: Growth = Growth()) -> float:
        """To learn from how many cases takes about as long as to judge an epoch, one of the first."""
        own, times = 1 + self._steps(), 1 + bool(growth.guard and growth.warm) / GLANCE
        return times * min(len(val), VALIDATED) * (own + STEPS * bool(self._better())) / (each or own)

    def _better(self) -> list[Bound]:
        """A better search for each of the balls."""
        balls = {(one.params.get("norm"), one.params.get("eps")) for one in self.all}
        known = sorted((norm, eps) for norm, eps in balls if norm in BETTER and eps is not None)
        return [untargeted(BETTER[norm], self.start, eps=eps, norm=norm, who="a judge") for norm, eps in known]

    def judge(self, rng: Stream, growth: Growth = Growth()) -> Judge:
        """Clean accuracy, the share of validation cases that withstand the attacks, and as the score that of those that
        withstand a better search in the same balls, too: one that is chosen by what it was trained by is flattered.
        """
        better = self._better()

        def shares(net: nn.Module, val: Cases, ball: float) -> tuple[float, float]:
            here, times = rng.at("validation"), self.epoch.times
            own = self._of([grown(one, ball, times) for one in self.all]).held(net, val, here)
            both = own.clone()
            both[own] = self._of([grown(one, ball, 1) for one in better]).held(net, val[own], here)
            return float(own.float().mean()), float(both.float().mean())

        def judged(net: nn.Module, val: Cases) -> dict[str, float]:
            val, ball = val[:VALIDATED], self.epoch.ball
            found, whole = shares(net, val, 1.0), ball >= 1
            some = val if whole else val[: -(-len(val) // GLANCE)]
            inside = shares(net, some, ball) if growth.guard and not whole else found
            return {**growth.seen(*inside, len(some), whole=whole), "score": found[1]}

        return lambda net, val: {**accuracy(net, val), **judged(net, val)}

    def held(self, net: nn.Module, val: Cases, rng: Stream) -> Tensor:
        """Which cases are right and withstand every attack, (N,)."""
        target, itself = self.target(net, val.x, rng), ModuleTarget(net, self.spec)
        made = [self._by(place, target, val.x, val.y, val.origin, rng) for place in range(len(self.all))]
        with torch.no_grad(), itself.ready():
            right = [self.chunks.map(lambda x: itself(x).argmax(1), x) == val.y for x in (val.x, *made)]
        return torch.stack(right).all(0)
