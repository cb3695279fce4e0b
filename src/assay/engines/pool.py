"""Workers on Ray: pure jobs go out, results come back in the order of the jobs, whatever becomes of a worker.

Nothing is written here: who asked for the work takes the results, one after another, and commits them. A job that was
under way when its worker died is given to another one; what is done twice counts once. So the number of workers, their
deaths and their pace change nothing but the time.
"""

import logging
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic

from assay.core.errors import AssayError, ModelFailed, UsageError
from assay.engines.actors import Hands, Job, Lost, RayHands, Result, Worker
from assay.engines.cluster import WAIT, Cluster, connected, patience
from assay.subjects.asked import Asked

__all__ = ["Job", "NoWorkers", "Pool", "Result", "Worker", "check_travels", "pool"]

log = logging.getLogger("assay")

TICK = 0.2  # seconds between two looks at whether to stop
CALLS = 2  # under way an actor: while one is worked the next one waits there
AHEAD = 4  # jobs drawn before the oldest is done, for each place that workers have
DEATHS = 5  # of workers under one job before it is given up
WAIT_SECONDS = 60.0  # without a worker before the work is given up
QUIET_SECONDS = 20.0  # of that, before it is said
TOGETHER_SECONDS = 5.0  # that the first worker waits for the others: one may never find a place
LATE = 2.0  # times the usual, after which a job is given to an idle worker too
LATE_SECONDS = 2.0  # and at least so many: doing short work twice costs more than it brings


class NoWorkers(AssayError):
    """No worker is left, and none came in time."""


@dataclass(slots=True, eq=False)
class _Task:
    """A job with its number, and what came of it."""

    number: int
    job: Any
    deaths: int = 0  # of workers that held it, less those that died without it since
    died: int = 0  # of workers that held it, in all
    given: float = 0.0
    holders: int = 0
    done: bool = False
    result: Any = None

    def end(self, result: Any) -> None:
        self.done, self.result = True, result


@dataclass(slots=True, eq=False)
class _Hand:
    """An actor: the calls under way, oldest first, and the tasks it holds."""

    actor: Any
    calls: list[Any]
    room: int = 0  # 0 before it is ready
    held: dict[int, _Task] = field(default_factory=dict)


class Pool(Generic[Job, Result]):
    """Actors at work. One ``map`` at a time; several may follow each other."""

    def __init__(self, hands: Hands) -> None:
        self._from = hands
        self.wanted, self.lost = hands.wanted, 0
        self._hands = [_Hand(actor, [call]) for actor, call in (hands.start() for _ in range(self.wanted))]
        self._missing: list[float] = []  # when to start another one for each that died
        self._queue: deque[_Task] = deque()
        self._ahead: deque[_Task] = deque()
        self._next = 0
        self._took: deque[float] = deque(maxlen=99)
        self._told: set[str] = set()
        self._alone_since: float | None = time.monotonic()
        self._why = "none has started"
        self._warned = False

    @property
    def room(self) -> int:
        """How many jobs a worker likes to hold, as far as is known."""
        return max((hand.room for hand in self._hands), default=0) or 1

    def state(self) -> dict[str, int]:
        """What people see: workers alive and wanted, workers lost, jobs that are not done."""
        alive = sum(hand.room > 0 for hand in self._hands)
        waiting = sum(not task.done for task in self._ahead)
        return {"workers": alive, "wanted": self.wanted, "lost": self.lost, "waiting": waiting}

    def ready(self) -> None:
        """Wait until there are workers: all, or those that came soon after the first."""
        first: float | None = None
        while (count := sum(hand.room > 0 for hand in self._hands)) < self.wanted:
            if count and first is None:
                first = time.monotonic()
            if first is not None and time.monotonic() - first > TOGETHER_SECONDS:
                return
            self._collect()

    def map(self, jobs: Iterable[Job], idle: Callable[[], bool]) -> Iterator[tuple[Job, Result | ModelFailed]]:
        """The jobs with their results, in order; a job under which worker after worker died with a ModelFailed.

        ``idle`` is called while nothing comes, at least every half second; where it says True all is left as it is.
        """
        source, self._ahead, self._queue = iter(jobs), deque(), deque()
        more = True
        try:
            while True:
                more = more and self._draw(source)
                self._give(rest=not more or self._full())
                while self._ahead and self._ahead[0].done:
                    task = self._ahead.popleft()
                    yield task.job, task.result
                    more = more and self._draw(source)
                    self._give(rest=not more or self._full())
                if (not more and not self._ahead) or idle():
                    return
                self._collect()
        finally:
            for task in self._ahead:  # what is under way is forgotten: nobody asks for it any more
                task.done = True
            self._queue, self._ahead = deque(), deque()

    def end(self) -> None:
        for hand in self._hands:
            self._from.end(hand.actor)
        self._hands = []

    def _full(self) -> bool:
        return len(self._ahead) >= AHEAD * self.wanted * self.room

    def _draw(self, source: Iterator[Job]) -> bool:
        """Take jobs as far as there is room for them; False where there are no more."""
        while not self._full():
            try:
                job = next(source)
            except StopIteration:
                return False
            task = _Task(self._next, job)
            self._next += 1
            self._ahead.append(task)
            self._queue.append(task)
        return True

    def _give(self, *, rest: bool) -> None:
        """Hand out what waits, evenly; ``rest`` says that no more comes for now, so that who is late gets help."""
        for _ in range(CALLS):
            gifts: dict[_Hand, list[_Task]] = {}
            while (hand := self._who_takes(gifts)) is not None:
                gifts.setdefault(hand, []).append(self._queue.popleft())
                self._hold(hand, gifts[hand][-1])
            for hand, tasks in gifts.items():
                self._call(hand, tasks)
        if rest and not self._queue:
            self._help()
        for hand in self._hands:
            if hand.room and hand.held and not hand.calls:
                self._call(hand, [])

    def _who_takes(self, gifts: dict[_Hand, list[_Task]]) -> _Hand | None:
        """The worker for the next task, None where it has to wait."""
        if not self._queue:
            return None
        hands = sorted((hand for hand in self._hands if hand.room), key=lambda hand: len(hand.held))
        if self._queue[0].deaths:  # worked alone: should it end another worker, it is known which it was
            return next((hand for hand in hands if not hand.held and not hand.calls), None)
        for hand in hands:
            over = 1 if hand.calls else 0  # the second call brings what the first one makes room for
            alone = any(task.deaths and not task.done for task in hand.held.values())
            if len(hand.calls) < CALLS and not alone and len(hand.held) < hand.room + over:
                return hand
        return None

    def _help(self) -> None:
        """Give what is late to a worker that has nothing to do: the first result counts."""
        if not self._took:
            return
        late = time.monotonic() - max(LATE_SECONDS, LATE * statistics.median(self._took))
        tasks = (task for task in self._ahead if not task.done and task.holders == 1 and task.given < late)
        for hand in self._hands:
            if hand.room and not hand.held and not hand.calls and (task := next(tasks, None)) is not None:
                self._hold(hand, task)
                self._call(hand, [task])

    def _hold(self, hand: _Hand, task: _Task) -> None:
        hand.held[task.number] = task
        task.holders += 1
        task.given = time.monotonic()

    def _call(self, hand: _Hand, tasks: list[_Task]) -> None:
        hand.calls.append(self._from.step(hand.actor, [(task.number, task.job) for task in tasks]))

    def _collect(self) -> None:
        """Hear of what has ended, for a moment at most."""
        self._start_missing()
        first = {hand.calls[0]: hand for hand in self._hands if hand.calls}
        ended = self._from.wait(list(first), TICK) if first else []
        if not first:
            time.sleep(TICK)
        for call in ended:
            hand = first[call]
            try:
                told, said = self._from.get(call)
            except Lost as error:
                self._lose(hand, str(error))
                continue
            hand.calls.pop(0)
            for level, line in said:
                if line not in self._told:
                    self._told.add(line)
                    log.log(level, "%s", line)
            if hand.room:
                self._take(hand, told)
            else:
                hand.room = max(1, told)
        self._check_alive()

    def _take(self, hand: _Hand, done: list[tuple[int, Any]]) -> None:
        for number, result in done:
            task = hand.held.pop(number, None)
            if task is None:
                continue
            task.holders -= 1
            if not task.done:
                self._took.append(time.monotonic() - task.given)
                task.end(result)

    def _lose(self, hand: _Hand, why: str) -> None:
        """A worker is gone: its tasks go to the front of what waits."""
        self._hands.remove(hand)
        self._from.end(hand.actor)
        self.lost += 1
        self._why = why
        self._missing.append(time.monotonic() + (0 if hand.room else 1))  # one that cannot start is not started at once
        again = [task for task in hand.held.values() if not task.done]
        log.warning("a worker is lost (%s); %d jobs it held are worked again, and another is started", why, len(again))
        for other in self._ahead:  # a worker that died without it speaks for a job that is suspected
            if other.deaths > 1 and other.number not in hand.held:
                other.deaths -= 1
        for task in sorted(again, key=lambda task: -task.number):
            task.holders -= 1
            task.deaths += 1
            task.died += 1
            if task.deaths >= DEATHS or task.died >= 4 * DEATHS:
                task.end(ModelFailed(f"the process that worked it died {DEATHS} times, the last time: {why}"))
            elif not task.holders:
                self._queue.appendleft(task)

    def _start_missing(self) -> None:
        now = time.monotonic()
        for due in [due for due in self._missing if due <= now]:
            self._missing.remove(due)
            actor, call = self._from.start()
            self._hands.append(_Hand(actor, [call]))

    def _check_alive(self) -> None:
        if any(hand.room for hand in self._hands):
            self._alone_since, self._warned = None, False
            return
        now = time.monotonic()
        self._alone_since = now if self._alone_since is None else self._alone_since
        alone, most = now - self._alone_since, patience(WAIT_SECONDS)
        if alone >= min(QUIET_SECONDS, most / 2) and not self._warned:
            self._warned = True
            log.warning("no worker is there (%s); waiting for one for up to %g s", self._why, most)
        if alone >= most:
            raise NoWorkers(
                f"no worker for {most:g} s ({self._why}); what was committed is kept, the same command goes on "
                f"from there; {WAIT}=SECONDS waits longer"
            )


@contextmanager
def pool(
    cluster: Cluster, make: Callable[[], Worker[Job, Result]], *, device: str, deterministic: bool
) -> Iterator[Pool[Job, Result]]:
    """Workers that each hold what ``make`` gives, until the block ends; entered when they are ready."""
    with connected(cluster):
        workers: Pool[Job, Result] = Pool(RayHands(cluster, make, device=device, deterministic=deterministic))
        try:
            workers.ready()
            yield workers
        finally:
            workers.end()


def check_travels(*targets: object) -> None:
    """Refuse, before anything starts, models that workers cannot hold."""
    if any(isinstance(target, Asked) for target in targets):
        raise UsageError(
            "--ray takes no model that only answers: its book of answers, its budget and its rate are kept in one "
            "process; leave --ray out"
        )
