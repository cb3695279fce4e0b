"""Coverages filled by a data set: here, or by workers on Ray whose states are merged in order."""

import itertools
import logging
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.engines.cluster import Cluster
from assay.engines.jobs import AT_ONCE, InTurn, Raised, Rows, done, on_cpu, slices
from assay.engines.pool import Pool, pool
from assay.stages.coverage import Coverage
from assay.stages.coverage.bitmap import Bitmap
from assay.stages.coverage.passes import Pass
from assay.stages.coverage.tknp import Patterns
from assay.subjects.observer import COLUMNS, Observer, Seen

log = logging.getLogger("assay")

# Sets of cells or patterns: of two workers' the union is what one would have, in whatever order. Other states are sums,
# which round by their order, or depend on what came before: what workers saw is added to those in the driver.
MERGED = (Bitmap, Patterns)


def points_of(n: int) -> list[int]:
    """After how many cases what is covered is noted: 1, 2, 4, 8 …, and all."""
    return sorted({*(1 << i for i in range(n.bit_length())), n})


class Covering:
    """Nets that are looked at and coverages that what is seen is added to."""

    def __init__(self, observer: Observer, coverages: Mapping[str, Coverage], chunks: Chunks) -> None:
        self.observer, self.coverages, self.chunks = observer, coverages, chunks
        self.passing: Pass | None = None
        self.begun = False

    def over(self, x: Tensor, points: Sequence[int]) -> Iterator[tuple[int, Seen]]:
        """Add every case; how many were added and what was seen of the last part, after each part.

        Parts end at the points and where a batch does. What was seen may be overwritten by the next part.
        """
        start = 0
        while start < len(x):
            stop = min(start + self.chunks.fits, len(x))
            inner = [point for point in points if start < point < stop]
            if self.begun and not inner:
                yield stop, self._pass(x[start:stop])
            else:  # the first block of all, which shows how many fit in memory, and those with a point inside
                seen, self.begun = self.observer.all(x[start:stop], self.chunks), True
                for begin, end in itertools.pairwise([start, *inner, stop]):
                    part = seen[begin - start : end - start]
                    for covered in self.coverages.values():
                        covered.add(part)
                    yield end, part
            start = stop

    def _pass(self, x: Tensor) -> Seen:
        if self.passing is None or self.passing.size != self.chunks.fits:
            self.passing = Pass(self.observer, list(self.coverages.values()), self.chunks)
        return self.passing(x)


class Reach(NamedTuple):
    """What a run of cases covers by itself, after ``cases`` of all: the states of coverages."""

    cases: int
    states: dict[str, dict[str, np.ndarray[Any, Any]]]


class Found(NamedTuple):
    """What a worker found in a run of cases; ``seen`` where coverages that cannot be merged ask for it."""

    reached: list[Reach]
    seen: dict[str, np.ndarray[Any, Any]]


@dataclass(slots=True)
class CoverHand:
    """What a worker holds: coverages that are empty before each job, and the inputs."""

    covering: Covering
    inputs: Rows
    seeing: bool
    empty: dict[str, dict[str, Tensor]] = field(init=False)

    def __post_init__(self) -> None:
        self.empty = {text: coverage.state() for text, coverage in self.covering.coverages.items()}

    def __call__(self, rows: slice) -> Found:
        for text, coverage in self.covering.coverages.items():
            coverage.load(self.empty[text])
        points = points_of(len(self.inputs))
        here = [point - rows.start for point in points if rows.start < point <= rows.stop]
        reached: list[Reach] = []
        parts: list[dict[str, np.ndarray[Any, Any]]] = []
        for end, seen in self.covering.over(self.inputs[rows].x, here):
            if self.seeing:
                parts.append({name: column.copy() for name, column in _columns(seen).items()})
            if end in here or rows.start + end == rows.stop:
                states = {text: on_cpu(c.state()) for text, c in self.covering.coverages.items()}
                reached.append(Reach(rows.start + end, states))
        return Found(
            reached, {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS} if parts else {}
        )


def _columns(seen: Seen) -> dict[str, np.ndarray[Any, Any]]:
    return on_cpu({name: getattr(seen, name) for name in COLUMNS})


def _made(
    observer: Observer, coverages: dict[str, Coverage], batch: int, x: Rows, seeing: bool
) -> InTurn[slice, Found]:
    opened = ExitStack()  # for as long as the process lasts
    for target in observer.targets:
        opened.enter_context(target.ready())
    return InTurn(CoverHand(Covering(observer, coverages, Chunks(batch)), x, seeing), opened)


class CoverPool:
    """Coverages filled on a cluster."""

    def __init__(self, cluster: Cluster, observer: Observer, coverages: dict[str, Coverage], batch: int) -> None:
        self.cluster, self.observer, self.coverages, self.batch = cluster, observer, coverages, batch
        self.merged: dict[str, Coverage] = {text: c for text, c in coverages.items() if isinstance(c, MERGED)}
        self.others = [c for text, c in coverages.items() if text not in self.merged]
        if self.others:
            told = ", ".join(text for text in coverages if text not in self.merged)
            log.info("%s: workers look at the inputs, and this process adds up what they saw", told)

    def all(self, x: Tensor, *, deterministic: bool) -> Generator[tuple[int, dict[str, int]], None, None]:
        """Cover every case; how many are covered so far, after each point and each worker's part, and the workers."""
        make = partial(_made, self.observer, self.merged, self.batch, Rows.of(Cases.of(x)), bool(self.others))
        device = str(self.observer.targets[0].device)
        workers: Pool[slice, Found | Raised]
        with pool(self.cluster, make, device=device, deterministic=deterministic) as workers:
            jobs = slices(len(x), AT_ONCE * workers.wanted, self.batch)
            for rows, result in workers.map(jobs, lambda: False):
                found = done(result, f"in cases {rows.start} to {rows.stop - 1}")
                before = rows.start
                for reach in found.reached:
                    self._take(reach, found, slice(before, reach.cases), rows.start)
                    before = reach.cases
                    yield reach.cases, workers.state()

    def _take(self, reach: Reach, found: Found, rows: slice, first: int) -> None:
        for text, coverage in self.merged.items():
            coverage.merge({name: torch.from_numpy(value) for name, value in _own(reach.states[text]).items()})
        if not self.others:
            return
        device = self.observer.targets[0].device
        edges = range(rows.start // self.batch * self.batch + self.batch, rows.stop, self.batch)  # as one run would
        for begin, end in itertools.pairwise([rows.start, *edges, rows.stop]):
            columns = (torch.from_numpy(found.seen[name][begin - first : end - first].copy()) for name in COLUMNS)
            seen = Seen(*(column.to(device) for column in columns))
            for coverage in self.others:
                coverage.add(seen)


def _own(state: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Copies: what came through Ray's store cannot be written to."""
    return {name: value.copy() for name, value in state.items()}
