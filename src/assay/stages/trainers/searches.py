"""The attacks inside a training: several in turn, against the net as it is, and what it withstands of them."""

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
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
from assay.stages.trainers.inner import Inner
from assay.stages.trainers.loop import Batch, Judge, Task, accuracy, fit
from assay.stages.trainers.plain import joined
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.watch import Watch
from assay.subjects.bench import Splits
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import Target

SURE = "pgd(steps=10, step=0.25, early_stop=false)"  # what judges a training whose own search does not
VALIDATED = 1000  # validation cases attacked after each epoch
SIZES = 16  # that a ball has while it grows


def _smaller(params: Mapping[str, Any], share: float) -> dict[str, Any]:
    """Parameters of a search in a smaller ball: fewer steps, each a larger share of it."""
    if "eps" not in params:
        return dict(params)
    told = {**params, "eps": share * params["eps"]}
    if {"steps", "step"} <= params.keys():
        told["steps"] = max(1, math.ceil(share * params["steps"]))
        told["step"] = params["step"] * math.sqrt(params["steps"] / told["steps"])
    return told


class Searches:
    """The attacks of a comma list, each with the ball of the training unless it names its own.

    Each makes an equal part of every batch; batches are drawn anew in each epoch, and so every case meets all of them.
    """

    def __init__(self, attacks: str, module: nn.Module, spec: InputSpec, *, eps: float, norm: str, batch: int) -> None:
        self.spec, self.inner, self.start = spec, Inner(spec), ModuleTarget(module, spec)
        self.eps, self.norm = eps, norm
        self.chunks = Chunks(max(batch, VALIDATED), alone=True)  # attacks take more memory than answers
        self.all = self._read(attacks)

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

    def warmed(self, progress: float, warm: float) -> "Searches":
        """The same in balls that grow to their full size over the share ``warm`` of the training.

        By a sixteenth at a time, not with every batch: a GPU replays a search, and one of another ball is another one.
        """
        return self.grown(math.floor(1 + SIZES * progress / warm) / SIZES if warm else 1.0)

    def grown(self, share: float) -> "Searches":
        """The same in balls of that share of their radius, in as many of their steps; what has no ball stays as it is.

        A net is straighter in a small ball, and fewer steps find what is in it: half a ball takes half the passes.
        """
        if share >= 1:
            return self
        return self._of([replace(one, params=_smaller(one.params, share)) for one in self.all])

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
        warm: float = 0.0,
    ) -> nn.Module:
        """The module trained on such batches; best epoch by what it withstands of these attacks.

        ``warm`` says that balls grow.
        """
        train, val = joined(data, extra), data.part("val").cases
        return fit(
            module, train, val, plan, rng=rng, watch=watch, batch=batch, judge=self.judge(rng), task=task,
            attacked=VALIDATED, heavier=self._weight() / self.warmed(0.0, warm)._weight(),
        )  # fmt: skip

    def _weight(self) -> float:
        """About what a step of the training takes, in steps of a search: those of all searches, and its own."""
        return 1 + sum(float(one.params.get("steps", 1)) for one in self.all) / len(self.all)

    def judge(self, rng: Stream) -> Judge:
        """Clean accuracy and, as the score, the share of validation cases that withstand every attack."""

        def judged(net: nn.Module, val: Cases) -> dict[str, float]:
            held = self.held(net, val[:VALIDATED], rng.at("validation"))
            return {**accuracy(net, val), "score": float(held.float().mean())}

        return judged

    def held(self, net: nn.Module, val: Cases, rng: Stream) -> Tensor:
        """Which cases withstand every attack, (N,)."""
        target, itself = self.target(net, val.x, rng), ModuleTarget(net, self.spec)
        held = torch.ones(len(val), dtype=torch.bool, device=val.x.device)
        for place in range(len(self.all)):
            made = self._by(place, target, val.x, val.y, val.origin, rng)
            with torch.no_grad(), itself.ready():
                held &= self.chunks.map(lambda x: itself(x).argmax(1), made) == val.y
        return held
