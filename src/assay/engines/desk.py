"""The desk of a training on Ray: workers leave there what they made, and the driver, who alone writes, takes it.

It is an actor beside the driver, so it outlives every worker: a group that lost one starts again from the last epoch
that lies here. It knows nothing of Ray, and nothing of torch, which takes seconds to import: what lies on it is packed.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DEATHS = 5  # of a worker without an epoch between them: the work itself kills it
QUIET = 3.0  # seconds; a worker that is not heard of for longer is not there
BEHIND = 2  # epochs that may wait for the driver before the workers do


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the training cannot go on: the name of one of our errors, "" for any other, and the text."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Told:
    """What the driver finds: messages in order, how far the epoch is, how the workers are, and what they occupy."""

    messages: list[tuple[str, Any]]
    place: tuple[int, float] | None
    seen: int
    alive: int
    lost: int
    room: Any


class Desk:
    """Takes from workers, gives to the driver. All its methods are coroutines: none keeps another waiting."""

    def __init__(self, done: int, state: bytes | None) -> None:
        """``state`` is that after the ``done`` epochs of sessions before this one."""
        self.done, self.state, self.over = done, state, False
        self.messages: list[tuple[str, Any]] = []
        self.place: tuple[int, float] | None = None
        self.room: Any = None  # what the cluster has set apart for the group
        self.seen = self.before = 0  # cases learned from: by this group, by those before it
        self.heard: dict[int, float] = {}  # when each rank was
        self.begun: dict[int, int] = {}  # how often each has, and since the last epoch
        self.fruitless: dict[int, int] = {}
        self.said: set[str] = set()
        self.changed = asyncio.Condition()

    async def begin(self, rank: int, room: Any) -> tuple[bool, bytes | None]:
        """A worker starts in its group's ``room``: whether all is over, and the state to go on from."""
        self.room = room
        self.begun[rank] = self.begun.get(rank, 0) + 1
        self.fruitless[rank] = self.fruitless.get(rank, 0) + 1
        self.heard[rank] = time.monotonic()
        if rank == 0:
            self.before, self.seen = self.before + self.seen, 0
        if self.fruitless[rank] > DEATHS and not self.over:
            await self.fail(Failure("", f"a worker died {DEATHS} times in one epoch"))
        return self.over, self.state

    async def beat(self, rank: int, place: tuple[int, float] | None, seen: int) -> bool:
        """A worker is alive, and so far; whether it has to stop."""
        self.heard[rank] = time.monotonic()
        if rank == 0:
            self.place, self.seen = place, seen
        return self.over

    async def epoch(self, done: int, state: bytes) -> None:
        """The state after so many epochs; one that is known already is nothing new."""
        if done <= self.done:
            return
        self.done, self.state, self.fruitless = done, state, {}
        async with self.changed:
            await self.changed.wait_for(lambda: self.over or self._waiting() < BEHIND)
        await self._put("epoch", state)

    async def note(self, facts: Mapping[str, Any]) -> None:
        """What a trainer says of its work."""
        await self._put("note", dict(facts))

    async def say(self, level: int, line: str) -> None:
        """A warning of a worker; said once, however many have it."""
        if line not in self.said:
            self.said.add(line)
            await self._put("say", (level, line))

    async def fail(self, failure: Failure) -> None:
        """The training cannot go on, whoever tries; the first to say so is heard."""
        if not self.over:
            self.over = True
            await self._put("failed", failure)

    async def finish(self, made: bytes) -> None:
        """The result, packed."""
        if not self.over:
            self.over = True
            await self._put("done", made)

    async def take(self, wait: float) -> Told:
        """What lies here, at once where something does, else after ``wait`` seconds."""
        async with self.changed:
            with contextlib.suppress(TimeoutError):  # nothing new is an answer too: who is alive
                await asyncio.wait_for(self.changed.wait_for(lambda: self.messages), wait)
            taken, self.messages = self.messages, []
            self.changed.notify_all()
        now = time.monotonic()
        alive = sum(now - when < QUIET for when in self.heard.values())
        lost = max(self.begun.values(), default=1) - 1
        return Told(taken, self.place, self.before + self.seen, alive, lost, self.room)

    def _waiting(self) -> int:
        return sum(kind == "epoch" for kind, _ in self.messages)

    async def _put(self, kind: str, content: Any) -> None:
        async with self.changed:
            self.messages.append((kind, content))
            self.changed.notify_all()
