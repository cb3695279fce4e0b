"""The one training loop. Trainers differ in what they do to a batch and in what they call a good epoch."""

import copy
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from assay.core import passes
from assay.core.cases import UNLABELLED, Cases
from assay.core.chunks import Chunks
from assay.core.errors import NothingToTest, UsageError
from assay.core.losses import smoothed
from assay.core.modes import eval_mode
from assay.core.precision import float_precision, halved
from assay.core.randomness import Stream
from assay.stages.trainers import graphed, ranks
from assay.stages.trainers.augment import Augmentation
from assay.stages.trainers.descent import Descent
from assay.stages.trainers.overfitting import overfitting
from assay.stages.trainers.plan import Plan, kept_share, optimiser_of, rate_at
from assay.stages.trainers.swapped import Swapped
from assay.stages.trainers.teacher import Teacher
from assay.stages.trainers.time_box import Cost, TimeBox
from assay.stages.trainers.watch import State, Watch
from assay.subjects.ordered import can_be_reordered, gains_on_cpu, reorder


@dataclass(frozen=True, slots=True)
class Moment:
    """Where in a training a batch is: the randomness of its epoch, the share that is done, the epochs before it."""

    rng: Stream
    progress: float
    log: Sequence[Mapping[str, float]] = ()


# (net, x, y, ids, moment) -> what to learn from: columns with a row for each case, the inputs first
Batch = Callable[[nn.Module, Tensor, Tensor, Tensor, Moment], tuple[Tensor, ...]]
Judge = Callable[[nn.Module, Cases], dict[str, float]]  # validation numbers; the one named "score" chooses the epoch

VALIDATED = 1000  # validation cases asked at once


@dataclass(frozen=True, slots=True)
class Task:
    """What is learned where it is not the class of every case, and by which weights (all, where none are named).

    ``loss(net, x, y, rows)`` is the mean over a batch; ``rows`` are its places among the training cases, and what else
    the trainer makes of a batch stands behind ``x``. ``after`` is called after every step, ``epoch`` after every epoch,
    before it is judged. With ``still`` the net learns in evaluation mode: statistics of batch normalisation stay,
    nothing is dropped out. A ``pure`` loss is the same work for every batch, and a GPU may replay it. ``passes`` is how
    often it asks the net about a row. Where the plan says ``distil``, ``y`` is what to answer with, (N, K).

    ``begin(net, train, epoch, memory)`` is called before every epoch with the cases that are trained on; what it
    returns is the memory that the next epoch's is called with, also where a training was stopped between them.
    """

    loss: Callable[..., Tensor]
    after: Callable[[nn.Module], None] | None = None
    weights: Collection[str] | None = None
    still: bool = False
    epoch: Callable[[nn.Module], None] | None = None
    pure: bool = False
    passes: int = 1
    begin: Callable[[nn.Module, Cases, int, dict[str, Tensor]], dict[str, Tensor]] | None = None


def fit(
    module: nn.Module,
    train: Cases,
    val: Cases,
    plan: Plan,
    *,
    rng: Stream,
    watch: Watch,
    batch: Batch | None = None,
    judge: Judge | None = None,
    task: Task | None = None,
    patience: int = 0,
    judging: float = 0.0,
    cost: Cost | None = None,
) -> nn.Module:
    """A trained copy of the module, with the weights of its best epoch on ``val``; the module itself is not touched.

    It ends after ``patience`` epochs that were no better than one before them. Judging an epoch takes about as long as
    learning from ``judging`` cases; what an epoch takes goes by the ``cost`` of the log before it.

    Each epoch depends on the state before it, the seed and its number alone, so a resumed training ends the same.

    Where several ranks train together, rank 0 judges for all, and they go the same way.
    """
    plan.check()
    train, val = train[train.y != UNLABELLED], val[val.y != UNLABELLED]
    if not len(train) or not len(val):
        raise NothingToTest(
            f"training needs labelled cases; there are {len(train)} to train on, {len(val)} to validate"
        )
    net = copy.deepcopy(module).train()
    for name, weight in net.named_parameters():
        weight.requires_grad_(task is None or task.weights is None or name in task.weights)
    device = next((p.device for p in net.parameters()), torch.device("cpu"))
    train, val = train.to(device), val.to(device)
    reordered = can_be_reordered(net) if halved(device) else device.type == "cpu" and gains_on_cpu(net)
    if reordered:
        reorder(net)
    run = _Run(net, train, plan, rng, watch, batch, task, judging, cost)
    state = watch.resume() or State(0, run.weights(), {}, {}, run.weights())
    run.load(state)
    others = len(state.log) - state.epoch
    while state.epoch < run.box.begin(state.log[others:]) and not _enough(state.log[others:], patience):
        epoch, started = state.epoch, time.perf_counter()
        with passes.counted() as asked:
            state.memory = run.begun(epoch, state.memory)
            loss = run.one_epoch(epoch, state.average, tuple(state.log[others:]))
        if task is not None and task.epoch is not None:
            task.epoch(net)
        run.ranks.level(net)
        with run.averaged(state.average), eval_mode(net):
            numbers = {
                "loss": loss,
                **run.ranks.told(lambda: _judged(judge or accuracy, net, val)),
                "passes": run.ranks.total(asked.all, val.x.device),
                **run.box.facts(),
                "seconds": run.ranks.told(partial(_since, started)),  # all plan by the same clock
            }
            if not math.isfinite(loss):
                raise UsageError(f"the loss is not finite in epoch {epoch + 1}; lower --lr (now {plan.lr:g})")
            sound = all(math.isfinite(number) for number in numbers.values() if isinstance(number, (int, float)))
            if not sound or not all(bool(weight.isfinite().all()) for weight in net.parameters()):
                # The losses of its steps were fine, what the last of them left is not.
                raise UsageError(
                    f"the net is broken after epoch {epoch + 1}: its answers or weights are not finite; lower "
                    f"--lr (now {plan.lr:g})"
                )
            if not state.log or rank(numbers) > max(map(rank, state.log)):
                state.best = run.weights()
        state.log.append({"epoch": epoch + 1, **numbers})
        state.epoch, state.weights, state.optimiser = epoch + 1, run.weights(), graphed.state_of(run.optimiser)
        watch.epoch(state, net)
    net.load_state_dict(state.best)
    if judge is not None and (fallen := overfitting(state.log[others:], min(len(val), VALIDATED))):
        watch.note({"overfitting": fallen})
    if reordered and device.type == "cpu":
        reorder(net, torch.contiguous_format)  # as when it is read from its file: numbers differ by rounding
    return net


def _since(started: float) -> float:
    return time.perf_counter() - started


def _judged(judge: Judge, net: nn.Module, val: Cases) -> dict[str, float]:
    """The numbers that choose the epoch, never in halved precision: the net is used without."""
    with float_precision(val.x.device):
        return judge(net, val)


def _enough(log: Sequence[dict[str, float]], patience: int) -> bool:
    """Whether the last epochs, as many as there is patience, were no better than one before them."""
    best = max(range(len(log)), key=lambda i: rank(log[i]), default=0)
    return 0 < patience < len(log) - best


def rank(numbers: dict[str, float]) -> tuple[float, float]:
    """What the best epoch is best in: the score, and the validation loss where scores are equal."""
    return (numbers["score"], -numbers["val_loss"])


def accuracy(net: nn.Module, val: Cases) -> dict[str, float]:
    """Clean accuracy and loss on the validation cases; the accuracy is the score."""

    def ask(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            logits = net(x)
        return (logits.argmax(1) == y).sum()[None], smoothed(logits, y, 0.0).sum()[None]

    right, loss = (sum(column.tolist()) for column in Chunks(VALIDATED).map_all(ask, val.x, val.y))
    share = right / len(val)
    return {"val_accuracy": share, "val_loss": loss / len(val), "score": share}


class _Run:
    """The moving parts of one training."""

    def __init__(
        self,
        net: nn.Module,
        train: Cases,
        plan: Plan,
        rng: Stream,
        watch: Watch,
        batch: Batch | None,
        task: Task | None,
        judging: float,
        cost: Cost | None,
    ) -> None:
        self.net, self.train, self.plan, self.rng, self.watch = net, train, plan, rng, watch
        self.batch, self.task = batch, task
        self.augmentation = Augmentation.parse(plan.augment)
        if self.augmentation and self.augmentation.idle(train.x.shape[1:]):
            shape = "×".join(map(str, train.x.shape[1:]))
            watch.note({"augment": f"{plan.augment}: moves nothing, as inputs are {shape}"})
        self.device, self.ranks = train.x.device, ranks.here()
        steps = -(-len(train) // plan.batch)
        self.box = TimeBox(plan, steps, self.ranks, self.device, judging / plan.batch, cost)
        self.teacher = Teacher(net, plan, self.ranks) if plan.distil else None
        pure = task is None or (task.pure and task.after is None)
        fast = pure and self.ranks.count == 1 and graphed.possible(net, self.device)
        self.optimiser = optimiser_of(plan, net, fast)
        loss = self._labels if task is None else partial(task.loss, net)
        graph = plan.batch if fast else 0
        self.descent = Descent(net, self.optimiser, loss, awp=plan.awp, graph=graph, ranks=self.ranks)

    def weights(self) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in self.net.state_dict().items()}

    def load(self, state: State) -> None:
        self.net.load_state_dict(state.weights)
        if state.optimiser:
            graphed.load_state(self.optimiser, state.optimiser)
        own = self.net.state_dict()  # in whose order the average is when nothing was stopped
        state.average = {name: torch.empty_like(own[name]).copy_(tensor) for name, tensor in state.average.items()}
        if self.plan.ema and not state.average:
            state.average = self.weights()

    def begun(self, epoch: int, memory: dict[str, Tensor]) -> dict[str, Tensor]:
        """What the trainer remembers from this epoch on."""
        begin = None if self.task is None else self.task.begin
        return memory if begin is None else begin(self.net, self.train, epoch, memory)

    def one_epoch(self, epoch: int, average: dict[str, Tensor], log: Sequence[Mapping[str, float]]) -> float:
        """Mean training loss of one pass over the cases."""
        plan, n = self.plan, len(self.train)
        here = self.rng.at("epoch", epoch)
        order = torch.randperm(n, generator=here.at("order").generator()).to(self.device)
        moves = here.at("augment").generator(self.device)
        total, seen = torch.zeros((), device=self.device), 0
        self.net.train(self.task is None or not self.task.still)
        devices = [self.device.index or 0] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices):  # dropout draws from torch's own generator
            own = (self.ranks.rank,) if self.ranks.rank else ()  # else all ranks would drop the same places of theirs
            torch.manual_seed(here.at("dropout", *own).generator().initial_seed())
            i = 0
            while i < self.box.steps:  # which the first epoch may lower
                rows, step, i = order[i * plan.batch :][: plan.batch], i, i + 1
                if len(rows) == 1 and n > 1 and self.net.training:
                    continue  # batch normalisation cannot learn from one case
                moment = Moment(here.at("inner"), self.box.progress(epoch, step), log)
                graphed.set_rate(self.optimiser, plan.lr * rate_at(plan.schedule, moment.progress))
                total += self._step(rows, moment, moves, average) * len(rows)
                self.ranks.seen += len(rows)
                seen += len(rows)
                self._follow(average, epoch * self.box.usual + step)
                self.watch.batch(epoch, i / self.box.steps)
        return float(total) / max(seen, 1)

    def _step(self, rows: Tensor, moment: Moment, moves: torch.Generator, average: dict[str, Tensor]) -> Tensor:
        n, part = len(rows), self.ranks.part(len(rows))
        rows = rows[part]
        x, y, share = self.train.x[rows], self.train.y[rows], len(rows) / n
        x = self.augmentation.apply(x, moves, (part.start, n))
        made = (x,) if self.batch is None or not share else self.batch(self.net, x, y, rows, moment)
        aims = y if self.teacher is None or not share else self.teacher.soft(x, y, average)
        loss = self.descent.step(*made, aims, rows, share=share)
        times = (1 if self.task is None else self.task.passes) * (2 if self.plan.awp else 1) * len(rows)
        passes.note(forward=times, gradient=times)
        if self.task is not None and self.task.after is not None:
            self.task.after(self.net)
        return loss

    def _labels(self, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        return smoothed(self.net(x), y, self.plan.smoothing).mean()

    def _follow(self, average: dict[str, Tensor], step: int) -> None:
        if self.plan.ema:
            now = self.net.state_dict()
            moving = [name for name, tensor in now.items() if tensor.is_floating_point()]
            new = 1 - kept_share(self.plan.ema, step)
            torch._foreach_lerp_([average[n] for n in moving], [now[n] for n in moving], new)
            for name in now.keys() - moving:
                average[name].copy_(now[name])

    def averaged(self, average: dict[str, Tensor]) -> Swapped:
        return Swapped(self.net, average)
