"""Measuring a live module in the middle of its training, and leaving the training exactly as it was."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from assay.core.errors import NOT_MET, AssayError, UsageError
from assay.core.randomness import Stream
from assay.core.registry import names
from assay.core.requirement import Requirement, Verdict
from assay.core.specs import canonical, did_you_mean, step
from assay.engines.columns import Eps
from assay.engines.evaluate import evaluate
from assay.engines.evaluation import Evaluation
from assay.subjects.bench import Data
from assay.subjects.data.arrays import to_data
from assay.subjects.data.load import load_data

GROUP = "assay"  # what the names of all numbers begin with


class RequirementNotMet(AssayError):
    """The training ended and its model does not reach what was required."""

    exit_code = NOT_MET


class Measuring:
    """What the callbacks share: when to measure, on what, and what the numbers must reach.

    ``n`` cases of the data are drawn once with ``seed``, so that every epoch is measured on the same ones. Inputs are
    in the data's own range; ``mean`` and ``std`` are what the training normalises by before the module sees them.
    """

    def __init__(
        self,
        data: str | Data | tuple[Any, Any],
        *,
        suite: Any = "fast",
        eps: Eps,
        norm: str = "linf",
        every: int = 1,
        n: int = 500,
        require: str | None = None,
        stop_when_met: bool = False,
        mean: tuple[float, ...] = (),
        std: tuple[float, ...] = (),
        ignore: Sequence[str] = (),
        seed: int = 0,
        batch: int = 256,
    ) -> None:
        if every < 1 or n < 1:
            raise UsageError(f"every and n are numbers from 1 up, got {every} and {n}")
        if stop_when_met and require is None:
            raise UsageError("stop_when_met needs require: what is to be met")
        self.requirement = None if require is None else Requirement.parse(require)
        if self.requirement is not None:
            _check_names(self.requirement)
        self.every, self.stop_when_met = every, stop_when_met
        self.data = _drawn(_pair(*data) if isinstance(data, tuple) else load_data(data, part="test"), n, seed)
        self.how: dict[str, Any] = {"suite": suite, "eps": eps, "norm": norm, "seed": seed, "batch": batch}
        self.how |= {"mean": tuple(mean), "std": tuple(std), "ignore": tuple(ignore)}
        self.last: Evaluation | None = None
        self.verdicts: tuple[Verdict, ...] = ()
        self.history: list[dict[str, float]] = []
        self.numbers: dict[str, float] = {}  # of the epoch that has just ended
        self.measured_at = 0  # how many epochs the training had done

    def due(self, epochs: int) -> bool:
        """Whether to measure now that so many epochs are done."""
        return epochs % self.every == 0

    def measure(self, module: nn.Module, epochs: int) -> dict[str, float]:
        """The numbers to log; the module, its gradients and every source of randomness come back as they were."""
        device = next((p.device for p in module.parameters()), torch.device("cpu"))
        with (
            same_randomness(),
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autocast(device.type, enabled=False),
        ):
            result = evaluate(module, self.data, **self.how)
        numbers = numbers_of(result)
        if self.requirement is not None:
            by_name = {name.removeprefix(f"{GROUP}/"): value for name, value in numbers.items()}
            self.verdicts = self.requirement.check(by_name)
            numbers[f"{GROUP}/met"] = float(self._met(result))
        self.last, self.measured_at = result, epochs
        self.history.append({"epoch": float(epochs), **numbers})
        return numbers

    @property
    def met(self) -> bool:
        """Whether the last numbers reach what is required; numbers that a check spoils reach nothing."""
        return self.last is not None and self._met(self.last)

    @property
    def stops(self) -> bool:
        """Whether the training has reached what it was to reach, and is to end."""
        return self.stop_when_met and self.met

    def judge(self) -> None:
        """Fail where the last numbers do not reach what is required."""
        if self.requirement is None or self.met:
            return
        assert self.last is not None  # the end of a training is always measured where something is required
        said = "; ".join(f"{v.clause} is {'met' if v.met else 'not met'}: {v.value:.4f}" for v in self.verdicts)
        checks = ", ".join(warning["name"] for warning in self.last.warnings)
        trust = f"; the numbers are unreliable ({checks})" if checks else ""
        epochs = f"{self.measured_at} epoch{'s' * (self.measured_at != 1)}"
        raise RequirementNotMet(
            f"after {epochs} the model does not reach {self.requirement}, n={self.last.clean.n}: {said}{trust}"
        )

    def _met(self, result: Evaluation) -> bool:
        return not result.unreliable and all(verdict.met for verdict in self.verdicts)


def numbers_of(result: Evaluation) -> dict[str, float]:
    """The numbers of an evaluation as loggers show them, the worst case with the ends of its interval."""
    low, high = result.worst.ci95
    numbers = {
        "clean": result.clean.accuracy,
        "robust": result.worst.accuracy,
        "robust_low": low,
        "robust_high": high,
        **{name: outcome.left.accuracy for name, outcome in result.attacks.items()},
        "unreliable": float(result.unreliable),
        "n": float(result.clean.n),
    }
    return {f"{GROUP}/{name}": value for name, value in numbers.items()}


@contextmanager
def same_randomness() -> Iterator[None]:
    """Python's, NumPy's and torch's generators go on after the block as if it had not been."""
    python, numpy = random.getstate(), np.random.get_state()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def _check_names(requirement: Requirement) -> None:
    """Refuse, before hours of training, what will never be measured."""
    for clause in requirement.clauses:
        known = ("clean", "robust", *names("attack"))
        if canonical(step(clause.name)[0]) not in map(canonical, known):
            raise UsageError(
                f"a callback cannot measure {clause.name!r}: require clean, robust or an attack of the suite; "
                f"{did_you_mean(clause.name, known[:2])}"
            )


def _pair(x: Any, y: Any) -> Data:
    """Inputs and labels; the images of a torch program have their channels first."""
    return to_data("data", x, y, known=isinstance(x, torch.Tensor) and x.dim() == 4)


def _drawn(data: Data, n: int, seed: int) -> Data:
    """So many cases of the data, in an order of their own: folders list one class after another."""
    if n >= len(data):
        return data
    order = torch.randperm(len(data), generator=Stream(seed, ("callback",)).generator())
    return replace(data, cases=data.cases[order[:n].sort().values], name=f"{data.name} ({n} drawn)", source="")
