"""Replay: training on fuzz cases that are made anew as the net changes."""

import copy

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
from assay.stages.trainers.loop import Judge, Moment, Task, fit
from assay.stages.trainers.plain import joined
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.searches import SURE, Searches
from assay.stages.trainers.watch import Watch
from assay.subjects.bench import Splits
from assay.subjects.sources.module import ModuleTarget

KNOWN = ".known"  # beside the weights in the memory of a training; no weight has such a name


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

    In periods of ``every`` epochs the mutator goes up to ``steps`` steps from each training input that the net with
    which the period began gets right, up the ``objective`` where there is one; its first case of another class is kept
    for the period. A ``share`` of each batch, inputs that have a case before others, is replaced by their cases; what
    is left is attacked where an ``attack`` is named. The best epoch is that of the highest accuracy under the attack,
    PGD-10 where none is named, and APGD.
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
        judging=searches.judging(data.part("val").cases),
    )


class Fresh:
    """The cases of the epochs at hand, and the batches that they are part of.

    They are made against the net with which a period begins, each when its input is first met: a training for a time
    may not meet all of them. That net is the memory of a training, with which inputs were met together: where it goes
    on in the middle it makes them again, together, since what rounding leaves of a number depends on its batch. Of
    several ranks each makes its own and the first one tells; there it is the same up to rounding.
    """

    def __init__(self, fuzzing: Fuzzing, rest: Searches | None, every: int, share: float, rng: Stream) -> None:
        if every < 1 or not 0 < share <= 1:
            raise UsageError(f"every counts epochs from 1 and share is in (0, 1], got {every} and {share}")
        self.fuzzing, self.rest, self.every, self.share, self.rng = fuzzing, rest, every, share, rng
        self.net: nn.Module | None = None  # with which the period began
        self.first = 0
        self.known, self.turn = torch.empty(0), 0  # when each input was met in the period: less than 0 without a case
        self.train, self.made = Cases.of(torch.empty(0, 1), torch.empty(0, dtype=torch.int64)), torch.empty(0)

    def begin(self, net: nn.Module, train: Cases, epoch: int, memory: dict[str, Tensor]) -> dict[str, Tensor]:
        """The net of the period and what is known of its cases, to be handed in again when the next epoch begins."""
        self.first = epoch - epoch % self.every
        if epoch == self.first:
            memory = {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}
            self._start(net, train, memory)
        elif self.net is None:  # a training that goes on
            self._start(net, train, memory)
            self._again(memory)
        return {**memory, KNOWN: self.known}  # which the epoch goes on writing: it is kept when that is over

    def _start(self, net: nn.Module, train: Cases, memory: dict[str, Tensor]) -> None:
        self.net = copy.deepcopy(net)
        self.net.load_state_dict({name: tensor for name, tensor in memory.items() if name != KNOWN})
        self.train, self.made = train, torch.empty_like(train.x)
        self.known, self.turn = torch.zeros_like(train.y, dtype=torch.int32), 0

    def _again(self, memory: dict[str, Tensor]) -> None:
        """What was made in the period before the training was stopped; it was counted then."""
        met = memory.get(KNOWN, self.known).to(self.known.device).abs()
        with passes.uncounted():
            for turn in range(1, int(met.max()) + 1):
                self._make((met == turn).nonzero().squeeze(1))

    def _make(self, ids: Tensor) -> None:
        """The cases of these inputs, where they were not made yet."""
        assert self.net is not None  # given when the epoch began
        new = ids[self.known[ids] == 0].sort().values
        if not len(new):
            return
        self.turn += 1
        cases = self.fuzzing.found(self.net, self.train, new, self.rng.at("fresh", self.first))
        self.known[new], self.known[cases.origin] = -self.turn, self.turn
        self.made[cases.origin] = cases.x

    def batch(self, net: nn.Module, x: Tensor, y: Tensor, ids: Tensor, at: Moment) -> tuple[Tensor]:
        """The batch with cases in the place of a share of its inputs, those that have one first."""
        self._make(ids)
        has, made = self.known[ids] > 0, x.clone()
        mine, others = (~has).int().argsort(stable=True).tensor_split([round(len(x) * self.share)])
        if self.rest is not None and len(others):
            made[others] = self.rest.made(net, x[others], y[others], ids[others], at.rng)
        made[mine] = torch.where(column(has[mine], x), self.made[ids[mine]], x[mine])
        return (made,)

    def judge(self, attacks: Searches) -> Judge:
        """What attacks leave right, as for other trainers, and how many cases there are.

        Not by the fuzzing itself: nets with flat slopes, such as one hardly trained, withstand that and no attack.
        """
        judged = attacks.judge(self.rng)
        return lambda net, val: {**judged(net, val), "fresh": int((self.known > 0).sum())}
