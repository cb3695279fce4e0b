"""A net made resistant to attacks that were made once, on the net it starts from (TwinFuzz, stage A)."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from assay.core.cases import UNLABELLED, Cases, inside
from assay.core.chunks import Chunks
from assay.core.errors import NothingToTest, UsageError
from assay.core.randomness import Stream
from assay.core.registry import Bound, register
from assay.core.specs import split
from assay.stages.attacks.untargeted import made_by, untargeted
from assay.stages.trainers.kept_back import Parted, among, judge, kept_back
from assay.stages.trainers.loop import fit
from assay.stages.trainers.plain import joined
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.watch import Watch
from assay.subjects.bench import Splits
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import Target, answer

log = logging.getLogger("assay")

CHECKED = 0.1  # as large a share of the heap is made besides, and kept back to choose the epoch
BLOCK = 256  # images attacked together


@register("trainer", paper="Dai et al. 2026 (TwinFuzz)", needs=("train", "grad"))
def resistant(
    module: nn.Module,
    data: Splits,
    extra: Cases | None,
    *,
    rng: Stream,
    watch: Watch,
    eps: float,
    norm: str = "linf",
    attacks: str = "fgsm(random_start=true, early_stop=false), pgd(steps=10, step=0.125, early_stop=false)",
    share: float = 0.2,
    epochs: int = 10,
    batch: int = 64,
    lr: float = 1e-3,
    optimiser: str = "adam",
    schedule: str = "constant",
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    smoothing: float = 0.0,
    augment: str = "",
    ema: float = 0.0,
    time: float = 0.0,
) -> nn.Module:
    """Clean cases and a fixed heap of attacks on the net it starts from; best epoch by a kept-back part of the heap."""
    plan = Plan(epochs, batch, lr, optimiser, schedule, momentum, weight_decay, smoothing, augment, ema, time=time)
    plan.check()
    train = data.part("train")
    # The module as it was given: a training that goes on loads other weights into its own copy.
    start = ModuleTarget(module, train.spec)
    heap = heap_of(start, train.cases, attacks=chosen(attacks, start, eps, norm), share=share, rng=rng)
    return learned(module, data, heap, extra, plan, rng=rng, watch=watch)


def learned(
    module: nn.Module, data: Splits, heap: Parted, extra: Cases | None, plan: Plan, *, rng: Stream, watch: Watch
) -> nn.Module:
    """The module trained on the clean cases, the heap and the extra cases; refused where there is nothing to learn."""
    added = heap.learn if extra is None else Cases.cat([heap.learn, extra])
    _check_some(added)
    # Paper's public code: the best epoch on the adversarial pool of the test set. Here: on successes kept back from
    # training images, because the other way the reported robustness has chosen its own model.
    checks = among(data.part("val"), heap.check).cases
    return fit(module, joined(data, added), checks, plan, rng=rng, watch=watch, judge=judge("floor", module))


def _check_some(cases: Cases) -> None:
    if not len(cases):
        raise NothingToTest(
            "no attack fooled the model on a training image that it gets right, so there is nothing to become "
            "resistant by; it must be a trained net, and more eps, more steps or a larger share finds more"
        )


def chosen(attacks: str, target: Target, eps: float, norm: str) -> tuple[Bound, ...]:
    """The attacks of a comma list, with their ball."""
    found = tuple(untargeted(one, target, eps=eps, norm=norm, who="a trainer") for one in split(attacks))
    if not found:
        raise UsageError('a resistant model needs attacks to resist; name one or more: attacks="fgsm, pgd"')
    return found


def attacks_of(trainer: Bound, target: Target) -> tuple[Bound, ...]:
    """The attacks whose successes this trainer heaps up, () where it heaps up none; refused where they cannot work."""
    if trainer.function is not resistant:
        return ()
    told = trainer.params
    return chosen(told["attacks"], target, told["eps"], told["norm"])


def heap_for(trainer: Bound, target: Target, train: Cases, rng: Stream) -> Parted:
    """The heap that this trainer makes with that ``rng``; an empty one where it attacks as it trains, or not at all.

    Refused where the trainer makes one and no attack succeeds.
    """
    attacks = attacks_of(trainer, target)
    if not attacks:
        none = train[:0]
        return Parted(none, none)
    made = heap_of(target, train, attacks=attacks, share=trainer.params["share"], rng=rng)
    _check_some(made.learn)
    return made


def with_heap(trainer: Bound, heap: Parted) -> Bound:
    """The trainer with the heap that ``heap_for`` made for it, which it does not make again; others as they are."""
    if trainer.function is not resistant:
        return trainer
    own = ("eps", "norm", "attacks", "share")  # of the heap; the other parameters are those of the training
    plan = Plan(**{name: value for name, value in trainer.params.items() if name not in own})

    def work(
        module: nn.Module, data: Splits, extra: Cases | None, *, rng: Stream, watch: Watch, **_: object
    ) -> nn.Module:
        return learned(module, data, heap, extra, plan, rng=rng, watch=watch)

    return replace(trainer, function=work)


def heap_of(
    target: Target,
    train: Cases,
    *,
    attacks: Sequence[Bound],
    share: float,
    rng: Stream,
    chunks: Chunks | None = None,
) -> Parted:
    """Successes of the attacks, as many as ``share`` of the training cases and a tenth more, which are kept back.

    The column ``attack`` says which of the attacks made a case; ``origin`` is the row of its image.

    Every attack gives equally many; what one cannot give the others do. An image counts where the target is right on
    it: else the success is the target's own. The same ``rng`` gives the same heap, whatever the size of chunks.
    """
    if not 0 < share < math.inf:
        raise UsageError(f"share must be above 0, got {share}")
    chunks = chunks or Chunks(BLOCK)
    with target.ready():
        right = answer(target, train.x, chunks).argmax(1).to(train.y.device) == train.y
        good = right & (train.y != UNLABELLED)
        back = kept_back(train.origin, rng.seed)
        learn, check = round(share * len(train)), math.ceil(CHECKED * round(share * len(train)))
        pools = {"learn": (good & ~back, learn), "check": (good & back, check)}
        made = {
            part: _pooled(target, train[rows], attacks, count, rng.at("heap", part), chunks)
            for part, (rows, count) in pools.items()
        }
    if len(made["learn"]) < learn or len(made["check"]) < check:
        log.warning(
            "the attacks succeeded on too few of %d training images (%d are right): %d of %d cases to learn from, "
            "%d of %d kept back; more eps or steps find more",
            *(len(train), int(good.sum()), len(made["learn"]), learn, len(made["check"]), check),
        )
    return Parted(**made)


def _pooled(target: Target, cases: Cases, attacks: Sequence[Bound], count: int, rng: Stream, chunks: Chunks) -> Cases:
    """``count`` successes with equal shares of the attacks, fewer where all images are tried."""
    # Paper's public code: every image attacked, then drawn with replacement. Here: each attack takes the images in an
    # order of its own and none twice, because copies of a case weigh it, and add nothing to learn.
    sources = [_Source(i, bound, target, cases, rng.at("attack", i), chunks) for i, bound in enumerate(attacks)]
    shares, lacking, able = [0] * len(sources), count, list(range(len(sources)))
    while lacking and able:
        for place, i in enumerate(able):
            part = lacking // len(able) + (place < lacking % len(able))
            shares[i] = sources[i].up_to(shares[i] + part)
        lacking = count - sum(shares)
        able = [i for i in able if sources[i].more or sources[i].total > shares[i]]
    return Cases.cat([source.first(n) for source, n in zip(sources, shares, strict=True)])


@dataclass(slots=True)
class _Source:
    """One attack on its way through the images."""

    number: int
    attack: Bound
    target: Target
    cases: Cases
    rng: Stream
    chunks: Chunks
    tried: int = 0
    found: list[Cases] = field(default_factory=list)
    order: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.order = torch.randperm(len(self.cases), generator=self.rng.at("order").generator())

    @property
    def more(self) -> bool:
        return self.tried < len(self.cases)

    @property
    def total(self) -> int:
        return sum(map(len, self.found))

    def up_to(self, count: int) -> int:
        """How many of ``count`` successes there are, after as many blocks as that takes."""
        while self.total < count and self.more:
            rows = self.order[self.tried : self.tried + BLOCK]
            self.found.append(self._successes(self.cases[rows]))
            self.tried += len(rows)
        return min(count, self.total)

    def first(self, count: int) -> Cases:
        return Cases.cat([self._noted(self.cases[:0]), *self.found])[:count]

    def _successes(self, clean: Cases) -> Cases:
        def work(x: Tensor, y: Tensor, origin: Tensor) -> tuple[Tensor, Tensor]:
            x, y, origin = (t.to(self.target.device) for t in (x, y, origin))
            made = made_by(self.attack, self.target, x, y, self.rng.rows(origin))
            with torch.no_grad():
                fooled = (self.target(made).argmax(1) != y) & inside(made, self.target.spec.bounds)
            return made.to(clean.x.device), fooled.to(clean.x.device)

        made, success = self.chunks.map_all(work, clean.x, clean.y, clean.origin)
        return self._noted(clean.with_x(made)[success])

    def _noted(self, cases: Cases) -> Cases:
        plain = replace(cases, info={})
        return plain.note(attack=torch.full_like(cases.y, self.number))
