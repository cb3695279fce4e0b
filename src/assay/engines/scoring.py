"""The scores of a pool of tests on Ray: every score is a number of a row, whoever works it."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.registry import Bound
from assay.engines.cluster import Cluster
from assay.engines.jobs import AT_ONCE, InTurn, Raised, Rows, done, on_cpu, slices
from assay.engines.pool import Pool, pool
from assay.stages.selectors.ranking import scored
from assay.subjects.bench import Bench
from assay.subjects.observer import COLUMNS

TRAINING = "training "  # how a bench calls what it saw of the training data; what is fitted to it is all that is asked


@dataclass(frozen=True, slots=True)
class Given:
    """What one method gave: a score of each test, (n,) float64, or why it gave none; and the seconds it took.

    ``facts`` are what it told of its work.
    """

    score: Tensor | None
    seconds: float
    why_not: UsageError | None = None
    facts: Mapping[str, Any] | None = None


class Looks(NamedTuple):
    """The columns of what was seen of all tests, the scores by the text of their stage, and seconds of looking."""

    columns: dict[str, Tensor]
    scores: dict[str, Given]
    seconds: float


class Part(NamedTuple):
    """The same of some rows, from a worker."""

    columns: dict[str, np.ndarray[Any, Any]]
    scores: dict[str, tuple[np.ndarray[Any, Any], float]]
    refused: dict[str, UsageError]
    seconds: float


@dataclass(slots=True)
class ScoreHand:
    """What a worker holds: the bench with all that is fitted, the tests, and what is asked of each."""

    bench: Bench
    tests: Rows
    stages: tuple[str, ...]
    columns: tuple[str, ...]

    def __call__(self, rows: slice) -> Part:
        began = time.perf_counter()
        hidden = looked(self.bench, self.tests[rows])
        part = Part(on_cpu({name: hidden.info[name] for name in self.columns}), {}, {}, time.perf_counter() - began)
        for text in self.stages:
            began = time.perf_counter()
            try:
                score = scored(self.bench, hidden, text, None, "").numpy()
            except UsageError as error:
                part.refused[text] = error
            else:
                part.scores[text] = score, time.perf_counter() - began
        return part


def looked(bench: Bench, cases: Cases) -> Cases:
    """The cases as methods get them, after one forward pass.

    Labels are what prioritising does without: a method that asks for them gets the model's own answer.
    """
    seen = bench.observed(cases)
    return replace(seen, y=seen.info["logits"].argmax(1).cpu())


def _made(bench: Bench, tests: Rows, stages: tuple[str, ...], columns: tuple[str, ...]) -> InTurn[slice, Part]:
    opened = ExitStack()  # for as long as the process lasts
    opened.enter_context(bench.target.ready())
    return InTurn(ScoreHand(bench, tests, stages, columns), opened)


@dataclass(frozen=True, slots=True)
class Scoring:
    """Looking at a pool of tests, and scoring it, on a cluster."""

    cluster: Cluster
    deterministic: bool

    def all(
        self, bench: Bench, cases: Cases, stages: Sequence[Bound], *, whole: bool, tell: Callable[[int, Any], None]
    ) -> Looks:
        """What is seen of the cases and the scores of all stages that can be used here.

        ``whole`` asks for all columns and not for the answers alone; ``tell`` hears how many tests are done, and of the
        workers.
        """
        fitted = self._fitted(bench, cases[:1], stages)
        texts = tuple(text for text, given in fitted.items() if given.why_not is None)
        lean = replace(
            bench,
            training=bench.training if any(stage.from_file for stage in stages) else None,
            kept={name: value for name, value in bench.kept.items() if not name.startswith(TRAINING)},
        )
        parts = list(self._parts(lean, cases, texts, COLUMNS if whole else COLUMNS[:1], tell))
        scores = {
            text: given if given.why_not is not None else _joined(text, given, parts) for text, given in fitted.items()
        }
        device = bench.target.device
        columns = {
            name: torch.from_numpy(np.concatenate([part.columns[name] for part in parts])).to(device)
            for name in parts[0].columns
        }
        return Looks(columns, scores, sum(part.seconds for part in parts))

    def _fitted(self, bench: Bench, one: Cases, stages: Sequence[Bound]) -> dict[str, Given]:
        """Fit here, once, what the scores go by: each is asked for one case."""
        hidden, fitted = looked(bench, one), dict[str, Given]()
        for stage in stages:
            began = time.perf_counter()
            bench.told()  # what was told before was of another method
            try:
                scored(bench, hidden, stage.text, None, "")
                fitted[stage.text] = Given(None, time.perf_counter() - began, facts=bench.told())
            except UsageError as error:
                fitted[stage.text] = Given(None, 0.0, why_not=error)
        return fitted

    def _parts(
        self,
        bench: Bench,
        cases: Cases,
        texts: tuple[str, ...],
        columns: tuple[str, ...],
        tell: Callable[[int, Any], None],
    ) -> Iterator[Part]:
        make, at = partial(_made, bench, Rows.of(cases), texts, columns), 0
        workers: Pool[slice, Part | Raised]
        with pool(self.cluster, make, device=str(bench.target.device), deterministic=self.deterministic) as workers:

            def idle() -> bool:
                tell(at, workers.state())
                return False

            jobs = slices(len(cases), AT_ONCE * workers.wanted, bench.chunks.fits)
            for rows, result in workers.map(jobs, idle):
                at = rows.stop
                yield done(result, f"in tests {rows.start} to {rows.stop - 1}")


def _joined(text: str, fitted: Given, parts: Sequence[Part]) -> Given:
    """One method's score of all rows; where it could not be used on some of them, on none."""
    refused = next((part.refused[text] for part in parts if text in part.refused), None)
    if refused is not None:
        return Given(None, 0.0, why_not=refused)
    score = torch.from_numpy(np.concatenate([part.scores[text][0] for part in parts]))
    seconds = fitted.seconds + sum(part.scores[text][1] for part in parts)
    return Given(score, seconds, facts=fitted.facts)
