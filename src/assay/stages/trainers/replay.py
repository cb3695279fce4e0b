"""Replay: training on fuzz cases that are made anew as the net changes."""

import logging

import torch
from torch import Tensor, nn

from assay.core import passes
from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.losses import smoothed
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.core.shapes import column
from assay.stages.trainers.fuzzed import Fuzzing
from assay.stages.trainers.loop import Judge, Moment, Task, Watch, fit
from assay.stages.trainers.plain import joined
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.searches import SURE, Searches
from assay.stages.trainers.swapped import Swapped
from assay.subjects.bench import Splits
from assay.subjects.sources.module import ModuleTarget

log = logging.getLogger("assay")


@register("trainer", needs=("train",))
def replay(
    module: nn.Module,
    data: Splits,
    extra: Cases | None,
    *,
    rng: Stream,
    watch: Watch,
    eps: float,
    norm: str = "linf",
    mutate: str = "ascend(lr=0.02, scale=rms)",
    objective: str = "zol, fol",
    steps: int = 10,
    every: int = 2,
    share: float = 0.5,
    attack: str = "",
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
    distil: float = 0.0,
    temperature: float = 1.0,
    time: float = 0.0,
) -> nn.Module:
    """Fuzz cases of the training inputs, made anew against the net every few epochs, are a share of each batch.

    Every ``every`` epochs the mutator goes up to ``steps`` steps from each training input that the net gets right, up
    the ``objective`` where there is one, and its first case of another class is kept. A ``share`` of each batch, inputs
    that have a case before others, is replaced by their cases; what is left is attacked where an ``attack`` is named.
    The best epoch is that of the highest accuracy under the attack, PGD-10 where none is named.
    """
    plan = Plan(
        epochs, batch, lr, optimiser, schedule, momentum, weight_decay, smoothing, augment, ema, awp, time,
        distil=distil, temperature=temperature,
    )  # fmt: skip
    spec = data.part("train").spec
    fuzzing = Fuzzing.parse(mutate, objective, steps, ModuleTarget(module, spec), eps=eps, norm=norm)
    searches = Searches(attack or SURE, module, spec, eps=eps, norm=norm, batch=batch)
    fresh = Fresh(fuzzing, searches if attack else None, every, share, rng)

    def loss(net: nn.Module, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        return smoothed(net(x), y, smoothing).mean()

    return fit(
        module,
        joined(data, extra),
        data.part("val").cases,
        plan,
        rng=rng,
        watch=watch,
        batch=fresh.batch,
        judge=fresh.judge(searches),
        task=Task(loss, pure=True, begin=fresh.begin),
    )


class Fresh:
    """The cases of the epochs at hand, and the batches that they are part of.

    They are made when a period begins; its net is the memory of a training, which makes them again where it goes on in
    the middle. That is smaller than they are, and cases of another net would be other cases.
    """

    def __init__(self, fuzzing: Fuzzing, rest: Searches | None, every: int, share: float, rng: Stream) -> None:
        if every < 1 or not 0 < share <= 1:
            raise UsageError(f"every counts epochs from 1 and share is in (0, 1], got {every} and {share}")
        self.fuzzing, self.rest, self.every, self.share, self.rng = fuzzing, rest, every, share, rng
        self.cases: Cases | None = None
        self.place = torch.empty(0)  # of each training input among the cases, -1 where it has none

    def begin(self, net: nn.Module, train: Cases, epoch: int, memory: dict[str, Tensor]) -> dict[str, Tensor]:
        first = epoch - epoch % self.every
        if epoch == first:
            memory = {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}
            self._make(net, train, first)
        elif self.cases is None:
            with Swapped(net, memory), passes.uncounted():  # they were counted when they were made first
                self._make(net, train, first)
        return memory

    def _make(self, net: nn.Module, train: Cases, epoch: int) -> None:
        self.cases = self.fuzzing.found(net, train, self.rng.at("fresh", epoch))
        log.info("replay: %d cases from %d inputs, against the net after epoch %d", len(self.cases), len(train), epoch)
        self.place = torch.full_like(train.y, -1)
        self.place[self.cases.origin] = torch.arange(len(self.cases), device=train.y.device)

    def batch(self, net: nn.Module, x: Tensor, y: Tensor, ids: Tensor, at: Moment) -> tuple[Tensor]:
        """The batch with cases in the place of a share of its inputs, those that have one first."""
        assert self.cases is not None  # made when the epoch began
        place, made = self.place[ids], x.clone()
        mine, others = (place < 0).int().argsort(stable=True).tensor_split([round(len(x) * self.share)])
        if self.rest is not None and len(others):
            made[others] = self.rest.made(net, x[others], y[others], ids[others], at.rng)
        if len(self.cases):
            theirs = self.cases.x[place[mine].clamp_min(0)]
            made[mine] = torch.where(column(place[mine] >= 0, x), theirs, x[mine])
        return (made,)

    def judge(self, attacks: Searches) -> Judge:
        """What attacks leave right, as for other trainers, and how many cases there are.

        Not by the fuzzing itself: nets with flat slopes, such as one hardly trained, withstand that and no attack.
        """
        judged = attacks.judge(self.rng)
        return lambda net, val: {**judged(net, val), "fresh": 0 if self.cases is None else len(self.cases)}
