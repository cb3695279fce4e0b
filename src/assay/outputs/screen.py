"""Progress on stderr: a bar on a terminal, a line every ten seconds elsewhere, nothing when quiet."""

import logging
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from assay.core.units import clock

LINE_SECONDS = 10.0
MADE = {"aeg": "generator", "reference": "reference net"}  # what people call the things that stages fit


def stderr() -> Console:
    """The console for progress and notices; rich honours NO_COLOR and knows a terminal when it sees one."""
    return Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


def plain(text: str) -> str:
    """Text from users or files on one line and without control characters: it can neither steer a terminal nor pass
    for a line of ours.
    """
    return "".join(c if c.isprintable() or c == "\t" else _written(c) for c in text)


class Lines(str):
    """Text of several lines that are ours to break; each is plain."""

    @classmethod
    def of(cls, parts: Iterable[str]) -> "Lines":
        return cls("\n".join(map(plain, parts)))


def lines(text: str) -> str:
    """The same for messages of several lines: those after the first are indented, as none that we begin is."""
    return "\n  ".join(plain(line).lstrip() if i else plain(line) for i, line in enumerate(text.split("\n")))


def _written(c: str) -> str:
    return "\\n" if c == "\n" else "\\x" + format(ord(c), "02x")


class _Notices(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        word = "note" if record.levelno < logging.WARNING else "warning"
        print(f"{word}: {lines(record.getMessage())}", file=sys.stderr)  # noqa: T201  the handler is the way out


def show_notices(*, quiet: bool) -> None:
    """Send what the library has to say to stderr."""
    log = logging.getLogger("assay")
    log.handlers = [_Notices()]
    log.setLevel(logging.WARNING if quiet else logging.INFO)
    log.propagate = False


class Screen:
    """A progress display: call it with the numbers of the moment."""

    def __init__(
        self, title: str, line: Callable[[Mapping[str, Any]], tuple[str, float | None]], *, quiet: bool
    ) -> None:
        self._line, self._quiet, self._title = line, quiet, title
        console = stderr()
        self._bar: Progress | None = None
        if not quiet and console.is_terminal:
            self._bar = Progress(
                SpinnerColumn(),
                TextColumn(plain(title), markup=False),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[text]}", markup=False),
                TimeElapsedColumn(),
                console=console,
                transient=True,
                refresh_per_second=2,
            )
            self._task = self._bar.add_task(title, total=None, text="")
        self._last = self._began = time.monotonic()

    def __enter__(self) -> "Screen":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, numbers: Mapping[str, Any]) -> None:
        if self._quiet:
            return
        now = time.monotonic()
        text, share = self._line(numbers)
        text = plain(text)
        if self._bar is None and now - self._last < LINE_SECONDS:
            return
        if self._bar is not None:
            self._bar.update(self._task, text=text, total=None if share is None else 1.0, completed=share or 0.0)
        else:
            self._last = now
            print(f"{self._title} {clock(now - self._began)}: {text}", file=sys.stderr)  # noqa: T201


def fuzz_line(numbers: Mapping[str, Any]) -> tuple[str, float | None]:
    """Cases, failures and rate of a fuzzing run, or how far the training is that comes before it."""
    if numbers.get("phase") == "resistant":
        return f"building the resistant model, epoch {numbers['epoch']:.1f}", None
    if "what" in numbers:  # in hardening the phase is another's word
        thing = MADE.get(numbers["what"], numbers["what"])
        return f"before the clock starts: training the {thing}, epoch {numbers['epoch']:.1f}", None
    rate = numbers["cases"] / max(numbers["seconds"], 1e-9)
    found = f"{numbers['failures']} {numbers.get('kept', 'failures')}"  # a recipe may keep what does not fail
    return f"{numbers['cases']} cases ({rate:.0f}/s), {found}, {numbers['seeds']} seeds done", None


def eval_line(numbers: Mapping[str, Any]) -> tuple[str, float | None]:
    """How far an evaluation is."""
    now = f", {numbers['attack']}" if numbers.get("attack") else ""
    return f"{numbers['done']} of {numbers['of']} cases{now}", numbers["done"] / numbers["of"]


def train_line(epochs: int | None) -> Callable[[Mapping[str, Any]], tuple[str, float | None]]:
    """Epoch and last validation numbers of a training."""
    last = ""

    def line(numbers: Mapping[str, Any]) -> tuple[str, float | None]:
        nonlocal last
        if "val_accuracy" in numbers:
            last = f", loss {numbers['loss']:.4f}, val {numbers['val_accuracy']:.4f}"
        share = numbers["epoch"] / epochs if epochs else None
        return f"epoch {numbers['epoch']:.1f}{f' of {epochs}' if epochs else ''}{last}", share

    return line
