"""Measuring for a gate: a model, and an older one on the same inputs, within a time budget where there is one."""

import logging
import math
import time as clock
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from assay.core.cases import UNLABELLED, Cases, InputSpec
from assay.core.chunks import Chunks
from assay.core.errors import NothingToTest, UsageError
from assay.core.requirement import Requirement
from assay.core.units import budget
from assay.engines.blocks import BLOCK, Progress
from assay.engines.cascade import Block
from assay.engines.cluster import Cluster
from assay.engines.columns import sizes_of
from assay.engines.evaluate import Model, evaluate
from assay.engines.evaluation import Evaluation
from assay.engines.gate_failures import most_examples
from assay.engines.gate_sides import Side, side_of_blocks, unchecked
from assay.engines.session import session
from assay.engines.subject import load_subject
from assay.engines.yardstick import Yardstick, suite_for
from assay.subjects.bench import Data
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target
from assay.subjects.target import answer

log = logging.getLogger("assay")

TIMED_BLOCK = 64  # inputs a block under a time budget, which ends with a whole one
CLEAN = ("clean",)  # what can be measured without an attack


@dataclass(frozen=True, slots=True)
class Loading:
    """How models are loaded and asked."""

    device: str = "auto"
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    queries: int | None = None
    ask: str = ""
    white_box: bool = False

    def options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("device", "mean", "std", "queries", "ask", "white_box")}


@dataclass(frozen=True, slots=True)
class Measuring:
    """What both models are measured with."""

    requirement: Requirement | None
    suite: Any
    eps: str | float | None
    norm: str
    seed: int
    ignore: Sequence[str]
    deterministic: bool
    loading: Loading
    progress: Progress | None
    labels: dict[str, str]
    attacked: bool
    batch: int = BLOCK
    each: bool = False
    cluster: Cluster | None = None  # where attacks are run; nothing of it decides a number
    memory: dict[Any, Any] | None = None  # of what was measured before, by all that decides the numbers

    @staticmethod
    def of(
        requirement: Requirement | None, suite: Any, eps: str | float | None, *, saves: bool, timed: bool, **rest: Any
    ) -> "Measuring":
        """``suite`` None is ``fast``, and none at all where only clean numbers are asked for and nothing is saved."""
        clauses = () if requirement is None else requirement.clauses
        attacked = saves or suite is not None or any(clause.stem not in CLEAN for clause in clauses)
        suite, labels = "fast" if suite is None else suite, dict[str, str]()
        if attacked:
            if len(sizes_of(eps)[0]) > 1:
                raise UsageError(f"a gate has one eps, got {eps!r}; check the others one by one")
            wanted = () if requirement is None else requirement.attacks
            if wanted:
                ball = {"eps": None if eps is None else budget(eps), "norm": rest["norm"]}
                suite, labels = suite_for(suite, wanted, ball)
        batch = TIMED_BLOCK if timed else BLOCK
        return Measuring(requirement, suite, eps, labels=labels, attacked=attacked, batch=batch, **rest)

    def side(self, model: Model, name: str, data: Data, **more: Any) -> tuple[Side, Evaluation | None]:
        """The model's numbers; the evaluation too, where there were attacks."""
        if self.memory is None:
            return self._measured(model, name, data, **more)
        key = self._key(model, data, more)
        if key not in self.memory:
            self.memory[key] = (*self._measured(model, name, data, **more), model)  # held: its id is nobody else's then
        side, result, _ = self.memory[key]
        return replace(side, name=name).called(self.labels), result

    def _key(self, model: Model, data: Data, more: dict[str, Any]) -> str:
        """All that decides the numbers; weights by their content, for a live model may be trained in between.

        The model itself too: two objects of one class with the same weights may compute different things.
        """
        target = load_target(model, data=data, **self.loading.options())
        clauses = () if self.requirement is None else self.requirement.clauses
        fol = any(clause.name == "fol" for clause in clauses)
        attacks = (self.suite, self.eps, self.norm, tuple(self.ignore), self.each or bool(self.labels), fol)
        who = model if isinstance(model, str) else id(model)
        told = (
            who,
            target.fingerprint(),
            data.fingerprint(),
            self.seed,
            self.batch,
            self.deterministic,
            more.get("time"),
        )
        return repr((*told, self.loading, attacks if self.attacked else None))

    def _measured(self, model: Model, name: str, data: Data, **more: Any) -> tuple[Side, Evaluation | None]:
        if not self.attacked:
            return self._clean(model, name, data, more.get("time")), None
        shape = data.spec.shape
        result = evaluate(
            model,
            data,
            suite=self.suite,
            eps=self.eps,
            norm=self.norm,
            each=self.each or bool(self.labels),  # a requirement on an attack must not depend on those named before it
            ignore=tuple(self.ignore),
            seed=self.seed,
            batch=self.batch,
            deterministic=self.deterministic,
            ray=self.cluster,
            progress=self.progress,
            examples=most_examples(shape) if more.get("save") is None else 0,
            **self.loading.options(),
            **more,
        )
        cascade = bool(result.protocol["cascade"])
        side = side_of_blocks(name, result.blocks, result.classes, list(result.attacks), cascade=cascade)
        side = side.called(self.labels)
        attacks = {label: outcome.to_json() for label, outcome in result.attacks.items()}
        side = replace(
            side,
            warnings=tuple(result.warnings),
            protocol=result.protocol,
            attacks=attacks,
            complete=result.complete,
            unchecked=unchecked(result.ignored, result.not_made),
        )
        return self._with_fol(side, model, data), result

    def _with_fol(self, side: Side, model: Model, data: Data) -> Side:
        clauses = () if self.requirement is None else self.requirement.clauses
        if not any(clause.name == "fol" for clause in clauses):
            return side
        target, given, _ = load_subject(model, data, **self.loading.options())
        if self.eps is None:
            raise UsageError("fol needs --eps: it says how well attacks converge in their ball")
        yardstick = Yardstick(target, "", self.eps, self.norm, self.seed)
        return replace(side, fol=yardstick.fol(target, given.cases))

    def _clean(self, model: Model, name: str, data: Data, time: float | None) -> Side:
        """Clean accuracy alone: one answer an input."""
        target, given, labelled = load_subject(model, data, **self.loading.options())
        until, chunks, answers = clock.monotonic() + (math.inf if time is None else time), Chunks(BLOCK), list[Tensor]()
        with session(deterministic=self.deterministic), target.ready():
            for x in labelled.x.split(self.batch):
                if answers and clock.monotonic() >= until:
                    break
                answers.append(answer(target, x.to(target.device), chunks).argmax(1).cpu())
        pred = torch.cat(answers)
        y = labelled.y[: len(pred)]
        side = side_of_blocks(name, [Block(y, pred == y, pred=pred)], target.spec.classes, cascade=False)
        protocol = {
            "model": model if isinstance(model, str) else "module",
            "model_fingerprint": target.fingerprint(),
            "data": given.name,
            "data_fingerprint": given.fingerprint(),
            "n": len(pred),
            "seed": self.seed,
        }
        right, shares = {"clean": side.right["clean"]}, {"clean": side.shares["clean"]}
        return replace(side, right=right, shares=shares, protocol=protocol, complete=len(pred) == len(labelled))


def inputs_of(data: str | Data | tuple[Tensor, Tensor], size: str, like: Model, *, shuffled: int | None) -> Data:
    """The labelled inputs of the test part; in an order drawn with the seed where only the first may be worked."""
    given = _of_tensors(*data) if isinstance(data, tuple) else load_data(data, part="test", size=size, like=like)
    rows = (given.cases.y != UNLABELLED).nonzero().flatten()
    if not len(rows):
        raise NothingToTest(f"{given.name} has no labels, so there is no accuracy to measure")
    if shuffled is not None:
        rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(shuffled))]
    return given if shuffled is None and len(rows) == len(given) else replace(given, cases=given.cases[rows])


def _of_tensors(x: Tensor, y: Tensor) -> Data:
    """Inputs within [0, 1] and their labels, as a test has them at hand."""
    if not isinstance(x, Tensor) or not isinstance(y, Tensor) or y.dim() != 1 or len(x) != len(y) or x.dim() < 2:
        raise UsageError("data is a spec such as digits/test, or two tensors: inputs (N, …) and their labels (N,)")
    if not len(x):
        raise NothingToTest("there are no inputs")
    if y.is_floating_point() or int(y.min()) < 0:
        raise UsageError("labels are whole numbers from 0 up")
    x = x.detach().cpu().float()
    if not bool(((x >= 0) & (x <= 1)).all()):
        raise UsageError(f"inputs lie within [0, 1], got {float(x.min()):g} to {float(x.max()):g}; see assay.Data")
    classes = tuple(map(str, range(max(2, int(y.max()) + 1))))
    return Data("tensors", Cases.of(x, y.detach().cpu().long()), InputSpec(tuple(x.shape[1:]), (0.0, 1.0), classes))


def first_of(data: Data, n: int) -> Data:
    """The first inputs, by the same name: those that the other model was measured on."""
    return data if n >= len(data) else replace(data, cases=data.cases[:n])
