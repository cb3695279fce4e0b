"""How a stand-in learns: the answers of a black box as something to learn from, and one round of learning."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.stages.trainers.loop import VALIDATED, Judge, Task, accuracy, fit
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.watch import Unwatched
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import answer


@dataclass(frozen=True, slots=True)
class Extraction:
    """How a stand-in is made: ``start`` inputs a class to begin with and ``checked_on`` others to check it, at most
    ``rounds`` rounds of ``epochs``, until it agrees with the target on a share ``tau``; a Jacobian ``step`` in shares
    of the input's range; never more than ``cap`` inputs to learn from.

    It learns labels; with ``soft`` the target's probabilities; with ``values`` its scores as plain numbers.
    """

    net: str = "lenet5"
    tau: float = 0.95
    rounds: int = 6
    start: int = 200
    checked_on: int = 1000
    step: float = 0.1
    epochs: int = 10
    batch: int = 64
    lr: float = 1e-3
    cap: int = 20_000
    soft: bool = False
    values: bool = False

    def check(self) -> None:
        for name in ("rounds", "start", "checked_on", "epochs", "batch", "cap"):
            if getattr(self, name) < 1:
                raise UsageError(f"a stand-in's {name} must be at least 1, got {getattr(self, name)}")
        if not 0 < self.tau <= 1 or not 0 < self.step <= 1:
            raise UsageError(f"tau and step must lie above 0 and be 1 at most, got {self.tau} and {self.step}")
        if self.soft and self.values:
            raise UsageError("a stand-in learns probabilities (soft) or values, not both")


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers of a target: ``labels`` (N,), and where more than labels are learned ``numbers`` (N, K): probabilities,
    or values with mean 0 and standard deviation 1 in every column of the answers that came first (``scale``).
    """

    labels: Tensor
    numbers: Tensor | None = None
    scale: tuple[Tensor, Tensor] | None = None

    @staticmethod
    def of(scores: Tensor, how: Extraction, like: "Answers | None" = None) -> "Answers":
        """The target's scores as answers; values are scaled as those ``like`` which there were before."""
        labels = scores.argmax(1)
        if how.soft:
            return Answers(labels, scores.softmax(1))
        if not how.values:
            return Answers(labels)
        scale = None if like is None else like.scale
        if scale is None:
            scale = (scores.mean(0), scores.std(0).clamp_min(torch.finfo(scores.dtype).eps))
        return Answers(labels, (scores - scale[0]) / scale[1], scale)

    def __getitem__(self, rows: Tensor) -> "Answers":
        return Answers(self.labels[rows], None if self.numbers is None else self.numbers[rows], self.scale)

    def joined(self, more: "Answers") -> "Answers":
        both = self.numbers is not None and more.numbers is not None
        numbers = torch.cat([self.numbers, more.numbers]) if both else None  # type: ignore[list-item]  # both are there
        return Answers(torch.cat([self.labels, more.labels]), numbers, self.scale)

    @property
    def are_values(self) -> bool:
        return self.scale is not None

    def disputed(self, scores: Tensor, least: float) -> tuple[Tensor, Tensor]:
        """Rows on which the stand-in's ``scores`` and the answers differ, with those nearest to it where they are fewer
        than a share ``least``; and for each the output whose slope is followed.

        Labels: the rows with another label, then those with the smallest margin; the output is the target's class.
        Values: the rows whose largest error is the largest; the output is the one with that error.
        """
        number = max(1, round(least * len(scores)))
        if self.are_values:
            assert self.numbers is not None
            error, output = (scores - self.numbers).abs().max(1)
            rows = error.argsort(descending=True, stable=True)[:number].sort().values
            return rows, output[rows]
        differ = scores.argmax(1) != self.labels
        first, second = scores.topk(2, dim=1).values.unbind(1)
        # Rows that differ before all others; among the others the smallest margin first.
        margin = torch.where(differ, torch.full_like(first, -1.0), first - second)
        rows = margin.argsort(stable=True)[: max(number, int(differ.sum()))].sort().values
        return rows, self.labels[rows]


def agreement(made: ModuleTarget, val: Cases, answers: Answers, chunks: Chunks) -> float:
    """How far the stand-in is the target, on the inputs kept for it: the share of equal labels, or R² of values."""
    scores = answer(made, val.x, chunks).cpu()
    return likeness(scores, answers)


def likeness(scores: Tensor, answers: Answers) -> float:
    """The share of equal labels; of values one minus the squared error in shares of the variance."""
    if not answers.are_values:
        return float((scores.argmax(1) == answers.labels).double().mean())
    assert answers.numbers is not None
    there = answers.numbers.double()
    error = (scores.double() - there).square().sum()
    return float(1 - error / (there - there.mean(0)).square().sum().clamp_min(1e-12))


def taught(
    net: nn.Module, x: Tensor, told: Answers, val: Cases, val_told: Answers, how: Extraction, rng: Stream
) -> nn.Module:
    """The net after one round, with the weights of its best epoch on ``val``."""
    plan = Plan(how.epochs, min(how.batch, len(x)), how.lr, schedule="constant")
    train = Cases.of(x, told.labels)
    task, judge = _task(told), _judge(val_told)
    return fit(net, train, val, plan, rng=rng, watch=Unwatched(), task=task, judge=judge).eval()


def _task(told: Answers) -> Task | None:
    """What is learned where it is not labels."""
    if told.numbers is None:
        return None
    numbers = told.numbers

    def loss(net: nn.Module, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        want = numbers[rows.to(numbers.device)].to(x.device)
        return F.mse_loss(net(x), want) if told.are_values else F.cross_entropy(net(x), want)

    return Task(loss)


def _judge(told: Answers) -> Judge:
    """Which epoch is best: the one that agrees most."""
    if not told.are_values:
        return accuracy

    def by_values(net: nn.Module, val: Cases) -> dict[str, float]:
        def ask(x: Tensor) -> Tensor:
            with torch.no_grad():
                out: Tensor = net(x).cpu()
            return out

        scores = Chunks(VALIDATED).map(ask, val.x)
        share = likeness(scores, told)
        return {"val_likeness": share, "val_loss": 1 - share, "score": share}

    return by_values
