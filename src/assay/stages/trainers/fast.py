"""Fast adversarial training: one step an input, and an eye on nets that learn to fool one step."""

import logging

import torch
from torch import Tensor, nn

from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.stages.trainers.growth import Growth
from assay.stages.trainers.loop import Moment
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.searches import SURE, Searches
from assay.stages.trainers.watch import Watch
from assay.subjects.bench import Splits

log = logging.getLogger("assay")

EVERY = 20  # batches between two looks
LOOKED_AT = 128  # cases of a batch


@register("trainer", paper="Wong et al. 2020", needs=("train", "grad"))
def fast(
    module: nn.Module,
    data: Splits,
    extra: Cases | None,
    *,
    rng: Stream,
    watch: Watch,
    eps: float,
    norm: str = "linf",
    step: float = 1.25,
    guard: float = 0.25,
    careful: str = "pgd(steps=4, step=0.4, early_stop=false)",
    epochs: int = 20,
    batch: int = 64,
    lr: float = 1e-3,
    optimiser: str = "adam",
    schedule: str = "cosine",
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    smoothing: float = 0.0,
    augment: str = "",
    ema: float = 0.0,
    awp: float = 0.0,
    time: float = 0.0,
    warm: float = 0.0,
    distil: float = 0.0,
    temperature: float = 1.0,
) -> nn.Module:
    """Adversarial training by a single step from a random point, with a guard; best epoch under PGD-10 and APGD.

    Nets that are trained by one step may come to fool that step and nothing else, from one epoch to the next
    (catastrophic overfitting). Every 20 batches some cases are attacked by PGD-10 too; where the net does better under
    the single step by more than ``guard``, the ``careful`` attack takes over until it does not. ``warm`` is the share
    of the training in which the balls of all of them grow to full size.
    """
    plan = Plan(
        epochs, batch, lr, optimiser, schedule, momentum, weight_decay, smoothing, augment, ema, awp, time,
        distil=distil, temperature=temperature,
    )  # fmt: skip
    growth = Growth(warm)
    single = f"pgd(steps=1, step={step}, early_stop=false)"
    one = Searches(single, module, data.part("train").spec, eps=eps, norm=norm, batch=batch)
    sure, slow = one.instead(SURE), one.instead(careful)
    eye = _Eye(one, guard)

    def attacked(net: nn.Module, x: Tensor, y: Tensor, ids: Tensor, at: Moment) -> tuple[Tensor]:
        made = one.at(at, growth).made(net, x, y, ids, at.rng)
        if not eye.fooled(net, made, (x, y, ids), sure.at(at, growth), at):
            return (made,)
        return (slow.at(at, growth).made(net, x, y, ids, at.rng),)

    trained = sure.learn(module, data, extra, plan, attacked, rng=rng, watch=watch, each=2)
    if eye.times:
        watch.note({"overfitted_to_one_step": eye.times})
    return trained


class _Eye:
    """Looks now and then whether a net withstands more than the one step it is trained by.

    What it saw counts for one epoch only, which then does the same in a training that goes on from there.
    """

    def __init__(self, one: Searches, guard: float) -> None:
        self.one, self.guard = one, guard
        self.times = 0  # how often it was so
        self._epoch: Stream | None = None
        self._batch, self._fooled = 0, False

    def fooled(
        self, net: nn.Module, made: Tensor, some: tuple[Tensor, Tensor, Tensor], sure: Searches, at: Moment
    ) -> bool:
        if at.rng != self._epoch:
            self._epoch, self._batch, self._fooled = at.rng, 0, False
        if self._batch % EVERY == 0:
            x, y, ids = (column[:LOOKED_AT] for column in some)
            by_one = self._right(net, made[:LOOKED_AT], y, at)
            by_many = self._right(net, sure.made(net, x, y, ids, at.rng), y, at)
            self._fooled = by_one - by_many > self.guard
            self.times += self._fooled
            if self._fooled:
                log.warning(
                    "fast: right on %.2f of a batch under one step and on %.2f under PGD-10; searching with care",
                    *(by_one, by_many),
                )
        self._batch += 1
        return self._fooled

    def _right(self, net: nn.Module, x: Tensor, y: Tensor, at: Moment) -> float:
        target = self.one.target(net, x, at.rng)
        with torch.no_grad(), target.ready():
            return float((target(x).argmax(1) == y).float().mean())
