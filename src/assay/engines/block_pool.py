"""The blocks of an evaluation on Ray. A block is a pure function of its rows: who works it changes nothing."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from assay.core.cases import Cases
from assay.engines.block_work import BlockWork, Outcome, where
from assay.engines.cluster import Cluster
from assay.engines.jobs import InTurn, Raised, Rows, done
from assay.engines.pool import Pool, pool


class BlockJob(NamedTuple):
    """Rows to work, and when to leave them: a block that would not end by then is not begun.

    ``until`` is the time of day, which the clocks of a cluster agree on; ``longest`` are the seconds of the longest
    block so far. The first of an evaluation has no ``until``.
    """

    start: int
    stop: int
    until: float | None
    longest: float


class Done(NamedTuple):
    """What came of a block, and the seconds it took."""

    outcome: Outcome
    seconds: float


@dataclass(slots=True)
class BlockHand:
    """What a worker holds of an evaluation."""

    work: BlockWork
    cases: Rows
    longest: float = 0.0

    def __call__(self, job: BlockJob) -> Done | None:
        """The block, None where there was no time for it."""
        if job.until is not None and time.time() + max(self.longest, job.longest) > job.until:
            return None
        began = time.perf_counter()
        rows = self.cases[job.start : job.stop].to(self.work.target.device)
        outcome = self.work.twice(rows, job.start, lambda _: None)
        taken = time.perf_counter() - began
        self.longest = max(self.longest, taken)
        return Done(outcome, taken)


def _made(work: BlockWork, cases: Rows) -> InTurn[BlockJob, Done | None]:
    opened = ExitStack()  # for as long as the process lasts
    for column in work.columns.values():
        opened.enter_context(column.maker.ready())
        opened.enter_context(column.judge.ready())
    return InTurn(BlockHand(work, cases), opened)


class BlockPool:
    """The blocks that are left of an evaluation, worked on a cluster and given back in order."""

    def __init__(self, cluster: Cluster, work: BlockWork, cases: Cases, *, deterministic: bool) -> None:
        self.cluster, self.work, self.cases, self.deterministic = cluster, work, cases, deterministic
        self.late = False
        self.longest = 0.0
        self.state: dict[str, Any] = {}

    def all(
        self, starts: range, batch: int, time_left: float | None, *, first: bool, idle: Callable[[dict[str, Any]], bool]
    ) -> Iterator[tuple[int, Outcome]]:
        """Each block's start and outcome, until there is no time for one; ``first`` says that nothing came before.

        ``idle`` is told of the workers and says whether to stop.
        """
        if not len(starts):
            return
        make, device = partial(_made, self.work, Rows.of(self.cases)), str(self.work.target.device)
        workers: Pool[BlockJob, Done | Raised | None]
        with pool(self.cluster, make, device=device, deterministic=self.deterministic) as workers:
            until = None if time_left is None else time.time() + time_left  # the start of the workers is not counted

            def jobs() -> Iterator[BlockJob]:
                for start in starts:
                    always = first and start == starts[0]
                    yield BlockJob(start, min(start + batch, len(self.cases)), None if always else until, self.longest)

            def waiting() -> bool:
                self.state = workers.state()
                return idle(self.state)

            for job, result in workers.map(jobs(), waiting):
                block = done(result, where(job.start, job.stop))
                if block is None:
                    self.late = True
                    return
                self.longest = max(self.longest, block.seconds)
                yield job.start, block.outcome
            self.state = workers.state()
