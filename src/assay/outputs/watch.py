"""Watching a run from outside: the same frame as its own screen, from ``stats.json``, never in its way."""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from assay.core import store
from assay.core.store import Store
from assay.core.units import clock
from assay.engines.stop import Stopper
from assay.outputs.live import Moment, frame
from assay.outputs.painting import Painting
from assay.outputs.readings import is_number, reading
from assay.outputs.screen import fuzz_line
from assay.outputs.screen_text import plain
from assay.outputs.status import alive, run_status

EACH = {"frame": 1.0, "lines": 10.0, "json": 2.0}  # seconds between two looks, in each way of telling


def moment_of(run: Store) -> Moment:
    """How a run stands, from its small files; of a hardening, the round that is under way."""
    kind = str(run.lines[0].meta.get("identity", {}).get("run", {}).get("kind", "run")) if run.lines else "run"
    rounds = sorted(run.path.glob("round-*/journal.jsonl"))
    told = run.stats()
    if kind == "harden" and rounds and alive(rounds[-1].parent):
        inner = store.read(rounds[-1].parent)
        numbers = reading(inner.stats())
        if numbers is not None:
            numbers |= {"place": inner.name, "phase": "fuzz"}
            return _moment(kind, numbers, inner.stats())
    numbers = reading(told)
    if numbers is not None:
        return _moment(kind, numbers, told)
    seconds = told.get("seconds")
    return Moment(kind, f"{run.name}, {len(run.lines)} commits", None, {}, seconds if is_number(seconds) else 0.0)


def _moment(kind: str, numbers: dict[str, Any], stats: Mapping[str, Any]) -> Moment:
    updated = stats.get("updated")
    late = max(0.0, time.time() - updated) if is_number(updated) else 0.0
    text, share = fuzz_line(numbers)
    return Moment(kind, text, share, numbers, numbers["seconds"] + min(late, 3600.0))


def watch(path: Path, *, as_json: bool = False) -> None:
    """Show a run until nobody works on it any more, or Ctrl-C: as JSON, how it stands in the end too, else the caller
    tells that.
    """
    console = Console(highlight=False, markup=False, emoji=False)
    way = "json" if as_json else "frame" if console.is_terminal and not console.is_dumb_terminal else "lines"
    with Stopper(None) as stop:  # Ctrl-C ends the watching, between two frames; nobody's work is stopped by it
        if way == "frame":
            _painted(path, console, stop)
            return
        for run in _looks(path, EACH[way], stop, anew=as_json):
            if way == "json":
                console.file.write(json.dumps(run_status(run), allow_nan=False) + "\n")
            else:
                moment = moment_of(run)
                signs = "".join(f"; ! {sign['name']}" for sign in moment.numbers.get("warnings", ()))
                console.file.write(f"{clock(moment.elapsed)}: {plain(moment.text + signs)}\n")
            console.file.flush()
    if as_json:
        console.file.write(json.dumps(run_status(store.read(path)), allow_nan=False) + "\n")


def _painted(path: Path, console: Console, stop: Stopper) -> None:
    ascii_only = not console.encoding.lower().startswith("utf")
    moment: Moment | None = None

    def lines() -> list[Text]:
        return [] if moment is None else frame(moment, console.width, console.height, ascii_only=ascii_only)

    with Painting(console, lines, redirect_stdout=True) as painting:
        for run in _looks(path, EACH["frame"], stop):
            moment = moment_of(run)
            painting.refresh()


def _looks(path: Path, seconds: float, stop: Stopper, *, anew: bool = False) -> Iterator[Store]:
    """The run again and again while somebody works on it; its shards are read anew only where nothing else tells."""
    run: Store | None = None
    while alive(path) and not stop.now:
        if run is None or anew or reading(run.stats()) is None:
            run = store.read(path)
        yield run
        end = time.monotonic() + seconds
        while time.monotonic() < end and not stop.now:
            time.sleep(min(0.05, seconds))
