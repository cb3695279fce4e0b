"""Sinks at work: each in a thread of its own, so that one that fails, hangs or is slow stops nobody."""

import logging
import math
import queue
import re
import threading
import time
from collections.abc import Sequence

from assay.core.errors import UsageError
from assay.core.registry import bind, names
from assay.core.specs import split, step
from assay.outputs.track import Event, Take
from assay.outputs.track.home import Home

log = logging.getLogger("assay")

STALL = 30.0  # seconds of one call after which a sink is given up while the work goes on
LEAVING = 10.0  # and when the work has ended: a server that has just started takes some for its first answer
OPENING = 60.0  # where it only prepares files here: the first database of MLflow takes ten on an idle machine
LEAVING_IN_ALL = 20.0
WAITING = 4  # events before a sink that is slow gets no more numbers until it has caught up
MOST_WAITING = 1000  # of those that are never left out
_USER = re.compile(r"//[^/\s]+@")


class Sink:
    """A tracker that takes events one after another in its own thread."""

    def __init__(self, name: str, take: Take) -> None:
        self.name, self._take = without_secrets(name), take
        self._events: queue.Queue[Event | None] = queue.Queue()
        self._doing: tuple[str, float] | None = None  # the event under way, and since when
        self._opened = math.inf  # when its own preparations ended, which need more time than an answer may
        self._gone = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, name=f"assay-{self.name}", daemon=True)
        self._thread.start()

    def post(self, event: Event, *, may_skip: bool = False) -> None:
        """Leave an event with it; never waits."""
        doing = self._doing
        if self._gone or (may_skip and self._events.qsize() >= WAITING):
            return
        if doing is not None and time.monotonic() - doing[1] > STALL:
            self._drop(f"no answer for {STALL:g} s")
        elif self._events.qsize() > MOST_WAITING:
            self._drop(f"{MOST_WAITING} events wait for it")
        else:
            self._events.put(event)

    def close(self) -> None:
        """No more events come."""
        self._events.put(None)

    def finish(self, since: float) -> None:
        """Wait for it, a few seconds and no longer; ``since`` is when the waiting for all sinks began."""
        told = False
        while self._thread.is_alive() and not self._gone:
            self._thread.join(0.05)
            now, doing = time.monotonic(), self._doing
            if not told and now - since > 1:
                told = True
                log.info("waiting for --log %s to take the last of it", self.name)
            if doing is None:
                continue
            patience = OPENING if doing[0] == "open" else LEAVING
            if now - max(doing[1], since) > patience:
                self._drop(f"no answer for {patience:g} s")
            elif now - max(self._opened, since) > LEAVING_IN_ALL:
                self._drop(f"{self._events.qsize()} events still wait for it after {LEAVING_IN_ALL:g} s")

    def _work(self) -> None:
        while (event := self._events.get()) is not None and not self._gone:
            self._doing = (event["event"], time.monotonic())
            try:
                self._take(event)
            except BaseException as error:  # noqa: BLE001  whatever a sink raises, the run is not its business
                self._drop(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}")
                return
            if event["event"] == "open":
                self._opened = time.monotonic()
            self._doing = None

    def _drop(self, why: str) -> None:
        with self._lock:
            first, self._gone = not self._gone, True
        if first:
            log.warning("--log %s is left out from here on, the work goes on: %s", self.name, without_secrets(why))


def sinks_of(text: str, home: Home) -> list[tuple[str, Take]]:
    """The sinks of a comma list: ``jsonl``, ``tensorboard:DIR``, ``mlflow(experiment=nets)``, ``file.py:function``."""
    found = []
    for part in split(text):
        known = [name for name in names("sink") if part.startswith(f"{name}:")]
        name, params = (known[0], {"place": part.removeprefix(f"{known[0]}:")}) if known else step(part)
        take = bind("sink", name, params)(home)
        if not callable(take):
            raise UsageError(f"{part} must return a function that takes an event, it gave {type(take).__name__}")
        found.append((part, take))
    shown = [without_secrets(part) for part, _ in found]
    for part in shown:
        if shown.count(part) > 1:
            raise UsageError(f"--log names {part} twice")
    return found


def finish(sinks: Sequence[Sink]) -> None:
    """Let every sink take what waits for it, all of them at the same time."""
    began = time.monotonic()
    for sink in sinks:
        sink.close()
    for sink in sinks:
        sink.finish(began)


def without_secrets(text: str) -> str:
    """An address without the user and password in it.

    >>> without_secrets("mlflow:https://me:secret@host/x")
    'mlflow:https://…@host/x'
    """
    return _USER.sub("//…@", text)
