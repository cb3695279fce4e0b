"""The stream of events about a piece of work: begun when there is something to tell, ended with its result."""

import logging
import queue
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.core import store
from assay.core.command import command_table
from assay.core.environment import version_of
from assay.core.errors import AssayError, BudgetSpent, Interrupted
from assay.core.journal import Line
from assay.core.onlookers import looking_on
from assay.core.places import push_late
from assay.outputs.track import Event, Take
from assay.outputs.track.home import Home
from assay.outputs.track.numbers import numbers_in, texts_in
from assay.outputs.track.sinks import Sink, finish, sinks_of
from assay.outputs.track.verdict import verdict_of

log = logging.getLogger("assay")

EVERY = 1.0  # seconds between two sets of numbers
PATIENCE = 5.0  # seconds at the end for drawing the last pictures
EPOCH = "val_accuracy"  # an epoch has ended: its numbers are never left out
ROUND = "round"
STOPPED = "interrupted"  # why a hardening ended that was

Progress = Callable[[Mapping[str, Any]], None]


@contextmanager
def tracked(
    log: str,
    verb: str,
    *,
    facts: Mapping[str, Any] | None = None,
    run: bool = True,
    named_by: str = "--run NAME",
    beside: str | Path | None = None,
) -> Iterator["Stream"]:
    """A stream for ``progress=`` that also goes to the sinks of ``log`` ("jsonl, tensorboard:DIR, mlflow").

    >>> with tracked("", "fuzz") as tell:
    ...     tell({"cases": 3})

    ``facts`` say what is worked on where no run tells; ``run`` whether there will be a run folder, which ``named_by``
    makes the command keep; ``beside`` is a file that the work writes, where there is none. Give the result to
    ``tell.result``. No sink ever stops or holds up the work: one that fails is left out, with a warning.
    """
    home = Home(expected=run, named_by=named_by)
    if beside is not None:
        home = Home(Path(beside).parent, f"{Path(beside).stem}.", name=Path(beside).stem)
    stream = Stream(sinks_of(log, home), verb, dict(facts or {}), home)
    if not stream.sinks:
        yield stream
        return
    with looking_on(stream):
        try:
            yield stream
        except BaseException as error:
            stream.close(error)
            raise
        stream.close(None)


class Stream:
    """Takes the numbers of the moment, as a screen does, and what is committed; sinks get it as events."""

    def __init__(self, sinks: list[tuple[str, Take]], verb: str, facts: Mapping[str, Any], home: Home) -> None:
        self.sinks, self.verb, self.facts, self.home = sinks, verb, facts, home
        self._path: Path | None = None
        self._before = 0.0  # seconds of work in earlier sessions of the run
        self._began = self._sent = -EVERY
        self._held: Mapping[str, Any] | None = None
        self._told: Mapping[str, Any] = {}
        self._pump: _Pump | None = None

    def on(self, screen: Progress) -> Progress:
        """Numbers for both."""
        if not self.sinks:
            return screen

        def tell(numbers: Mapping[str, Any]) -> None:
            screen(numbers)
            self(numbers)

        return tell

    def __call__(self, numbers: Mapping[str, Any]) -> None:
        if not self.sinks:
            return
        self._begin()
        if EPOCH not in numbers and time.monotonic() - self._sent < EVERY:
            self._held = numbers
            return
        self._send(numbers, may_skip=EPOCH not in numbers)

    def result(self, told: Mapping[str, Any]) -> None:
        """What the work came to, as ``to_json`` tells it."""
        self._told = told

    def opened(self, path: Path, stats: Mapping[str, Any]) -> None:
        """The first run that is opened is the one; those inside it are its rounds."""
        if self._path is None:
            self._path = path.resolve()
            self.home.name = path.name
            self.home.folder = self.home.folder or self._path
            seconds = stats.get("seconds", 0.0)
            self._before = float(seconds) if isinstance(seconds, int | float) else 0.0

    def committed(self, path: Path, line: Line) -> None:
        """A refused command leaves nothing behind: events begin with work, not with a run that was only opened."""
        if line.meta.get("kind") == "begin":
            return
        self._begin()
        assert self._pump is not None  # it is there once events have begun
        self._pump.give((path.resolve(), line))

    def close(self, error: BaseException | None) -> None:
        """The end: its result or its error. Without work there is nothing to tell."""
        if self._pump is None and (error is not None or not self._told):
            return
        self._begin()
        assert self._pump is not None
        if self._held is not None:
            self._send(self._held, may_skip=False)
        report = self._path / "report" / "index.html" if self._path is not None else None
        self._pump.give(
            {
                "event": "end",
                "time": time.time(),
                "step": self._step(),
                "status": _status(error, self._told),
                "verdict": verdict_of(self.verb, self._told),
                "error": _words(error),
                "report": str(report) if report is not None and report.is_file() else None,
                "numbers": numbers_in(_without_protocol(self._told), "result/"),
            }
        )
        self._pump.finish()
        if self._path is not None:
            push_late(self._path)

    def _begin(self) -> None:
        if self._pump is not None:
            return
        self._began = time.monotonic()
        self._pump = _Pump([Sink(name, take) for name, take in self.sinks])
        self._pump.give({"event": "open", "time": time.time()})
        self._pump.give(
            {
                "event": "begin",
                "time": time.time(),
                "verb": self.verb,
                "name": self.home.name,
                "run": None if self._path is None else str(self._path),
                "seconds_before": self._before,
                "assay": version_of("assay"),
                "config": {**self.facts, **command_table()} if self._path is None else _config(self._path),
                "identity": {} if self._path is None else store.begun_with(self._path),
            }
        )

    def _send(self, numbers: Mapping[str, Any], *, may_skip: bool) -> None:
        """Numbers as an event: by the epoch where the verb trains, else by the seconds that the run has worked."""
        assert self._pump is not None
        self._sent, self._held = time.monotonic(), None
        by_epoch = self.verb == "train" and EPOCH in numbers
        # A curve has one axis: how far a training is within an epoch is another curve than what its epochs came to.
        prefix = "progress" if self.verb == "train" and not by_epoch else numbers.get("phase") or self.verb
        self._pump.give(
            {
                "event": "numbers",
                "time": time.time(),
                "by": "epoch" if by_epoch else "seconds",
                "step": int(numbers["epoch"]) if by_epoch else self._step(),
                "numbers": numbers_in(numbers, f"{prefix}/"),
                "texts": texts_in(numbers),
            },
            may_skip=may_skip,
        )

    def _step(self) -> int:
        return int(self._before + time.monotonic() - self._began)


class _Pump:
    """Hands events on to the sinks, and makes events of commits, in a thread of its own."""

    def __init__(self, sinks: list[Sink]) -> None:
        self.sinks = sinks
        self._given: queue.SimpleQueue[tuple[Event | tuple[Path, Line] | None, bool]] = queue.SimpleQueue()
        self._pictures: Any = None
        self._thread = threading.Thread(target=self._work, name="assay-events", daemon=True)
        self._thread.start()

    def give(self, what: Event | tuple[Path, Line], *, may_skip: bool = False) -> None:
        self._given.put((what, may_skip))

    def finish(self) -> None:
        self._given.put((None, False))
        self._thread.join(PATIENCE)
        finish(self.sinks)

    def _work(self) -> None:
        while True:
            what, may_skip = self._given.get()
            if what is None:
                return
            for event in [what] if isinstance(what, dict) else self._of_commit(*what):
                for sink in self.sinks:
                    sink.post(event, may_skip=may_skip)

    def _of_commit(self, run: Path, line: Line) -> Iterator[Event]:
        if line.meta.get("kind") == ROUND:
            told = {**line.meta.get("numbers", {}), **line.meta.get("counts", {})}
            step = int(line.meta["round"])
            numbers = numbers_in(told, "round/")
            yield {"event": "numbers", "time": time.time(), "by": ROUND, "step": step, "numbers": numbers, "texts": {}}
        if self._pictures is None:
            from assay.outputs.track.pictures import Pictures

            self._pictures = Pictures()
        try:
            for told in self._pictures.of(run, line):
                yield {"event": "image", "time": time.time(), **told}
        except Exception as error:  # noqa: BLE001  of a run that is moved or repaired meanwhile there are no pictures
            log.info("no pictures of commit %d for --log: %s", line.step, error)


def _status(error: BaseException | None, told: Mapping[str, Any]) -> str:
    if isinstance(error, KeyboardInterrupt | Interrupted) or told.get("interrupted") or told.get("stopped") == STOPPED:
        return "interrupted"
    if isinstance(error, BudgetSpent) or told.get("complete") is False:
        return "budget spent"
    if error is not None:
        return "failed"
    return "not met" if told.get("met") is False else "done"


def _words(error: BaseException | None) -> str:
    return "" if error is None else str(error) if isinstance(error, AssayError) else type(error).__name__


def _config(path: Path) -> dict[str, Any]:
    """The whole configuration of a run, budgets too."""
    try:
        return tomllib.loads((path / "campaign.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _without_protocol(told: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers that came out, not those that went in."""
    return {name: value for name, value in told.items() if name not in ("protocol", "seed", "queries")}
