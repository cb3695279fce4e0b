"""Progress on stderr: a fixed screen on a terminal, a line every ten seconds elsewhere, JSON lines for machines,
nothing when quiet.
"""

import json
import logging
import math
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.text import Text

from assay.core.memory import memory
from assay.core.units import clock
from assay.outputs.live import Moment, frame
from assay.outputs.painting import Painting
from assay.outputs.screen_text import Lines, lines, plain, workers_line

__all__ = ["Lines", "Screen", "eval_line", "fuzz_line", "lines", "plain", "show_notices", "stderr", "train_line"]

EACH = {"lines": 10.0, "json": 1.0, "frame": 0.5}  # seconds between two, in each way of telling
MADE = {"aeg": "generator", "reference": "reference net"}  # what people call the things that stages fit

Line = Callable[[Mapping[str, Any]], tuple[str, float | None]]


def stderr() -> Console:
    """The console for progress and notices; rich honours NO_COLOR and knows a terminal when it sees one."""
    return Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


class _Notices(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        word = "note" if record.levelno < logging.WARNING else "warning"
        print(f"{word}: {lines(record.getMessage())}", file=sys.stderr)  # noqa: T201  the handler is the way out


class _JsonNotices(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        word = "note" if record.levelno < logging.WARNING else "warning"
        _print_json({"event": word, "message": record.getMessage()})


def show_notices(*, quiet: bool) -> None:
    """Send what the library has to say to stderr."""
    log = logging.getLogger("assay")
    log.handlers = [_Notices()]
    log.setLevel(logging.WARNING if quiet else logging.INFO)
    log.propagate = False


class Screen:
    """A progress display: call it with the numbers of the moment."""

    def __init__(self, title: str, line: Line, *, quiet: bool, json_lines: bool = False) -> None:
        self._line, self._title = line, title
        self._console = stderr()
        terminal = self._console.is_terminal and not self._console.is_dumb_terminal
        self._way = "quiet" if quiet else "json" if json_lines else "frame" if terminal else "lines"
        self._painting: Painting | None = None
        self._last = self._began = time.monotonic()
        self._now: tuple[Mapping[str, Any], str, float | None, float] = ({}, "starting", None, self._began)
        self._first: tuple[float, float] | None = None  # the first share that was told, and when
        self._handlers: list[logging.Handler] = []

    def __enter__(self) -> "Screen":
        if self._way == "frame":
            # A model that prints must not write over the frame, nor leave a pipe.
            redirect = sys.stdout.isatty()
            self._painting = Painting(self._console, self._frame, each=EACH["frame"], redirect_stdout=redirect)
            self._painting.start(refresh=True)
        elif self._way == "json":
            log = logging.getLogger("assay")
            self._handlers, log.handlers = log.handlers, [_JsonNotices()]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._painting is not None:
            self._painting.stop()
        elif self._way == "json":
            logging.getLogger("assay").handlers = self._handlers
            if self._now[0]:
                self._tell_json("ended" if error is None else "broken")

    def __call__(self, numbers: Mapping[str, Any]) -> None:
        if self._way == "quiet":
            return
        now = time.monotonic()
        text, share = self._line(numbers)  # each time: a line may remember what was told before
        self._now = numbers, text, share, now  # at once: the screen is painted by another thread
        if share is not None and self._first is None:
            self._first = share, now
        if now - self._last < EACH[self._way]:
            return
        self._last = now
        if self._way == "json":
            self._tell_json("progress")
        elif self._way == "lines":
            self._tell_line(now)

    def _tell_line(self, now: float) -> None:
        numbers, text, _, _ = self._now
        signs = "".join(f"; ! {sign['name']}" for sign in numbers.get("warnings", ()))
        print(f"{self._title} {clock(now - self._began)}: {plain(text + signs)}", file=sys.stderr)  # noqa: T201

    def _tell_json(self, event: str) -> None:
        told = {"event": event, "verb": self._title, "elapsed": round(time.monotonic() - self._began, 3)}
        _print_json(told | dict(self._now[0]))

    def _frame(self) -> list[Text]:
        now = time.monotonic()
        numbers, text, share, at = self._now
        if "memory" not in numbers:
            numbers = {**numbers, "memory": memory()}
        elapsed = numbers["seconds"] + now - at if "tried" in numbers else now - self._began
        moment = Moment(self._title, text, share, numbers, elapsed, self._left(now))
        ascii_only = not self._console.encoding.lower().startswith("utf")
        return frame(moment, self._console.width, self._console.height, ascii_only=ascii_only)

    def _left(self, now: float) -> float | None:
        """Seconds, if what is left goes as what is done; nothing is known before a hundredth is."""
        numbers, _, share, _ = self._now
        if share is None or self._first is None or "time_limit" in numbers:
            return None
        first, since = self._first
        done, spent = share - first, now - since
        return (1 - share) * spent / done if done >= 0.01 and spent > 0 else None


def _print_json(told: Mapping[str, Any]) -> None:
    print(json.dumps(_finite(told), allow_nan=False), file=sys.stderr, flush=True)  # noqa: T201


def _finite(value: Any) -> Any:
    """The same without numbers that JSON has not."""
    if isinstance(value, Mapping):
        return {str(name): _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def fuzz_line(numbers: Mapping[str, Any]) -> tuple[str, float | None]:
    """Cases, failures and rate of a fuzzing run, or how far the training is that comes before it."""
    if numbers.get("phase") == "resistant":
        return f"building the resistant model, epoch {numbers['epoch']:.1f}", None
    if "what" in numbers:  # in hardening the phase is another's word
        thing = MADE.get(numbers["what"], numbers["what"])
        return f"before the clock starts: training the {thing}, epoch {numbers['epoch']:.1f}", None
    tried = numbers.get("tried", numbers["cases"])
    rate = numbers.get("rate", tried / max(numbers["seconds"], 1e-9))
    waiting = numbers.get("waiting", 0)  # found and not yet kept; the distinct are counted when they are
    found = f"{numbers['failures'] - waiting} {numbers.get('kept', 'failures')}"  # a recipe may keep what does not fail
    if "distinct" in numbers:
        found += f" ({numbers['distinct']} distinct)"
    if waiting:
        found += f" and {waiting} to be kept at the next commit"
    more = f", {numbers['coverage']:.1%} covered" if numbers.get("coverage") is not None else ""
    if numbers.get("since_new") is not None:
        more += f", last new {clock(numbers['since_new'])} ago"
    if numbers.get("workers"):
        more += f", {workers_line(numbers['workers'])}"
    return f"{tried} cases ({rate:.0f}/s), {found}, {numbers['seeds']} seeds done{more}", _share(numbers, tried)


def _share(numbers: Mapping[str, Any], tried: int) -> float | None:
    """How much of the budget is spent; without one, of the seeds."""
    parts = [(numbers["seconds"], numbers.get("time_limit")), (tried, numbers.get("cases_limit"))]
    shares = [done / limit for done, limit in parts if limit]
    if not shares and numbers.get("seed_list"):
        shares = [numbers["seeds"] / numbers["seed_list"]]
    return min(1.0, max(shares)) if shares else None


def eval_line(numbers: Mapping[str, Any]) -> tuple[str, float | None]:
    """How far an evaluation is."""
    now = f", {numbers['attack']}" if numbers.get("attack") else ""
    if numbers.get("workers"):
        now += f", {workers_line(numbers['workers'])}"
    return f"{numbers['done']} of {numbers['of']} cases{now}", numbers["done"] / numbers["of"]


def learning(numbers: Mapping[str, Any]) -> str:
    """How fast a training on Ray learns, and by whom; "" where it is done in this process.

    >>> learning({"epoch": 2.5, "images": 1024.3, "workers": {"workers": 1, "wanted": 2, "lost": 0}})
    ', 1024 images/s, 1 of 2 workers'
    """
    if not numbers.get("workers"):
        return ""
    rate = f", {numbers['images']:.0f} images/s" if "images" in numbers else ""
    return f"{rate}, {workers_line(numbers['workers'])}"


def train_line(epochs: int | None) -> Line:
    """Epoch and last validation numbers of a training."""
    last = ""

    def line(numbers: Mapping[str, Any]) -> tuple[str, float | None]:
        nonlocal last
        if "val_accuracy" in numbers:
            last = f", loss {numbers['loss']:.4f}, val {numbers['val_accuracy']:.4f}"
        share = numbers["epoch"] / epochs if epochs else None
        return f"epoch {numbers['epoch']:.1f}{f' of {epochs}' if epochs else ''}{last}{learning(numbers)}", share

    return line
