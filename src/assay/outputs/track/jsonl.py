"""Events as lines of JSON."""

import json
import os
from pathlib import Path

from assay.core.files import write_all
from assay.core.registry import register
from assay.outputs.track import Event, Take
from assay.outputs.track.home import Home

NAME = "events.jsonl"


@register("sink")
def jsonl(home: Home, *, place: str = "") -> Take:
    """One JSON object a line, added to events.jsonl in the run folder or to the file at PLACE."""
    if not place:
        home.check("jsonl", "FILE")
    handle = -1

    def take(event: Event) -> None:
        nonlocal handle
        if event["event"] == "open":
            handle = _opened(Path(place) if place else home.place(NAME))
            return
        told = {name: value for name, value in event.items() if name != "picture"}
        write_all(handle, json.dumps(told, allow_nan=False, default=str).encode() + b"\n")
        if event["event"] == "end":
            os.close(handle)

    return take


def _opened(path: Path) -> int:
    """The file to add to; a line that a kill tore is ended first. A link of that name is not followed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    size = os.fstat(handle).st_size
    if size and os.pread(handle, 1, size - 1) != b"\n":
        write_all(handle, b"\n")
    return handle
