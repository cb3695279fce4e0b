"""What the three files of a gate share: text that is safe anywhere, numbers, the verdict, where an input lies."""

import json
import math
import posixpath
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from assay.engines.gate_result import Gate, GateFailure, GateRow
from assay.outputs.screen import plain

WORST_FIRST = ("not met", "unreliable", "undecided", "met")
SHORT, LONG = 200, 1000  # characters of a name and of a message; names of classes may be as long as a file


def clean(text: object, most: int = LONG) -> str:
    """Text from anywhere as one printable line of bounded length: no control, no half character, no mark that turns
    the direction of writing.

    >>> clean("a\\x00b\\n"), clean("abcdef", 4)
    ('a\\\\x00b\\\\n', 'abc…')
    """
    raw = str(text)
    shown = plain(raw[: most + 1]).replace("\t", " ")
    return shown if len(raw) <= most and len(shown) <= most else shown[: most - 1] + "…"


def number(value: float | None) -> str:
    """A share, a difference or a count as people read it; ``–`` where there is none.

    >>> number(0.41), number(12.0), number(None)
    ('0.410', '12', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.0f}" if float(value).is_integer() and abs(value) > 1 else f"{value:.3f}"


def value(row: GateRow) -> str:
    """The number of a row; one without an interval that is whole was counted."""
    counted = row.ci95 is None and row.value is not None and float(row.value).is_integer()
    return f"{row.value:.0f}" if counted else number(row.value)


def interval(ci95: tuple[float, float] | None) -> str:
    """``0.310 to 0.420``."""
    return "–" if ci95 is None else f"{number(ci95[0])} to {number(ci95[1])}"


def finite(value: Any) -> Any:
    """The value for JSON, in which neither NaN nor infinity has a name."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [finite(one) for one in value]
    return value


def verdict(gate: Gate) -> str:
    """One word for all rows: the worst of them, or ``met``."""
    return min((row.status for row in gate.rows), key=WORST_FIRST.index, default="met")


def decided(row: GateRow) -> str:
    """The row in one line: what was asked, what came, how sure that is."""
    told = clean(row.message) or f"{clean(row.clause, SHORT)}: {row.status}"
    return told if row.needed is None or str(row.needed) in told else f"{told} (n={row.needed} would decide it)"


def facts(gate: Gate) -> Iterator[tuple[str, str]]:
    """What the numbers were measured with, as names and texts."""
    yield "subject", clean(gate.subject)
    yield "require", clean(gate.requirement)
    if gate.baseline is not None:
        yield "baseline", clean(gate.baseline)
    for name, value in gate.protocol.items():
        if value is not None:
            yield clean(name, SHORT), clean(value if isinstance(value, str) else _json(value))
    yield "complete", "yes" if gate.complete else "no: the time ended first, the numbers are of the inputs before"
    for name, folder in (("run", gate.run), ("regressions", gate.fuzzed)):
        if folder is not None:
            yield name, clean(folder)


def _json(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


def replay_line(gate: Gate, failure: GateFailure) -> str:
    """The command that asks this input anew; empty where no run holds it."""
    home = failure.place if failure.kind == "old failure" else gate.fuzzed if failure.attack == "fuzzing" else gate.run
    kept = failure.kind == "old failure" or failure.attack  # a clean input is in the data, not in a run
    return shlex.join(["assay", "replay", home, failure.id]) if home and kept else ""


def model_file(spec: str) -> str:
    """The file that a model's text names: its source where that is a Python file, else its weights.

    >>> model_file("net.py:make@w.safetensors"), model_file("lenet5@w.safetensors"), model_file("model.onnx")
    ('net.py', 'w.safetensors', 'model.onnx')
    """
    source = re.match(r"(?:call:)?(.+\.py):", spec)
    return (source[1] if source else spec.partition("@")[2] or spec)[:LONG] or "."


def uri(path: str) -> str:
    """A path as a URI, relative to the working folder where it lies in it; whatever is in it, it stays a path.

    >>> uri("data/my cats.npz"), uri("javascript:alert(1)")
    ('data/my%20cats.npz', 'javascript%3Aalert%281%29')
    """
    text = posixpath.normpath(path.replace("\\", "/") if "/" not in path else path)
    here = Path.cwd().as_posix().rstrip("/") + "/"
    text = text.removeprefix(here)
    told = quote(text.encode("utf-8", "surrogatepass"), safe="/")
    return f"file://{told}" if text.startswith("/") else told
