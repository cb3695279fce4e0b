"""Failures that are never trained on: which they are, and how they choose the epoch."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.modes import eval_mode
from assay.core.randomness import Stream
from assay.stages.trainers.loop import Judge, accuracy
from assay.subjects.bench import Data

CHECK_SHARE = 0.2  # of the seeds: what grows from them is never trained on
DROP = 0.01  # of clean accuracy that a net may lose for the accuracy on failures
FAILURE = "failure"  # the column that tells failures from clean validation cases


@dataclass(frozen=True, slots=True)
class Parted:
    """Cases in two parts that share no seed: those to learn from, and those kept back, which are never trained on."""

    learn: Cases
    check: Cases


def kept_back(origin: Tensor, seed: int) -> Tensor:
    """Which cases are never trained on: all that grew from a fixed share of the seeds, in every round, (N,)."""
    return Stream(seed, ("harden", "split")).rows(origin).uniform(()) < CHECK_SHARE


def among(clean: Data, failures: Cases) -> Data:
    """The validation cases with failures behind them, told apart by a column; those already among them stay so."""
    own, none = clean.cases, torch.zeros_like(clean.cases.y)
    marked = [own.note(failure=own.info.get(FAILURE, none)), failures.note(failure=torch.ones_like(failures.y))]
    return replace(clean, cases=Cases.cat(marked), name=f"{clean.name} and failures", source="")


def score(clean: float, failures: float, start: float) -> float:
    """The accuracy on failures where the clean one holds its level, one less where it does not.

    So an epoch that loses more than a point of the start's clean accuracy comes behind all that do not.

    >>> score(clean=0.97, failures=0.6, start=0.98), score(clean=0.96, failures=0.75, start=0.98)
    (0.6, -0.25)
    """
    return failures if start - clean <= DROP + 1e-9 else failures - 1.0


def judge(best: str, start: nn.Module) -> Judge | None:
    """How the best epoch is chosen; ``start`` is the net before training, whose clean accuracy ``floor`` holds."""
    if best not in ("accuracy", "floor"):
        raise UsageError(f"best is 'accuracy' (on all validation cases) or 'floor' (failures first), got {best!r}")
    return _floor(start) if best == "floor" else None


def _floor(start: nn.Module) -> Judge:
    level: list[float] = []

    def judged(net: nn.Module, val: Cases) -> dict[str, float]:
        failed = val.info[FAILURE] == 1 if FAILURE in val.info else torch.zeros_like(val.y, dtype=torch.bool)
        clean, failures = val[~failed], val[failed]
        if not len(failures) or not len(clean):
            return accuracy(net, val)
        if not level:
            with eval_mode(start):
                level.append(accuracy(start, clean)["score"])
        told, right = accuracy(net, clean), accuracy(net, failures)["score"]
        return {**told, "failures_accuracy": right, "score": score(told["score"], right, level[0])}

    return judged
