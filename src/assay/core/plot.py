"""``plot.csv``: how a fuzzing run went, one line at most each second, for charts. Nothing is ever derived from it."""

import os
from pathlib import Path
from typing import Any

from assay.core.files import storage_error, write_all, write_atomic

COLUMNS = ("seconds", "seeds", "cases", "failures", "distinct", "broken", "kinds", "coverage")
NAME = "plot.csv"
_LARGEST = 1 << 62  # of a count: what is larger was not written here, and no chart draws it
_SECONDS = 1.0  # between two lines that say the same counts


class Plot:
    """The file of a run that is open for writing."""

    def __init__(self, folder: Path, seconds: float, cases: int) -> None:
        """Go on after what is there; lines later than ``seconds`` and ``cases`` tell of work that was lost."""
        self.path = folder / NAME
        kept = [row for row in read_plot(folder) if row["seconds"] <= seconds + 1e-3 and row["cases"] <= cases]
        self.last, self._good = kept[-1] if kept else None, _text(kept)
        try:
            self._fresh = self.path.read_bytes() != self._good  # torn, damaged or too long
        except OSError:
            self._fresh = True

    def add(self, row: dict[str, Any]) -> None:
        """Append a line, unless one a moment ago says the same."""
        row = {name: row.get(name) for name in COLUMNS}
        if self.last is not None:
            same = all(row[name] == self.last[name] for name in COLUMNS[1:6])
            if row["seconds"] < self.last["seconds"] or (same and row["seconds"] - self.last["seconds"] < _SECONDS):
                return
        if self._fresh and self.last is not None:
            write_atomic(self.path, self._good + _line(row))  # a kill does not take the lines of earlier sessions
        else:
            self._write(self._good + _line(row) if self._fresh else _line(row))
        self.last, self._good, self._fresh = row, b"", False

    def _write(self, content: bytes) -> None:
        # Not synced: a file for people to look at, of which a crash may tear the last line. Never through a link.
        how = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_TRUNC if self._fresh else os.O_APPEND)
        try:
            handle = os.open(self.path, how, 0o644)
            try:
                write_all(handle, content)
            finally:
                os.close(handle)
        except OSError as error:
            raise storage_error(error, self.path, len(content)) from error


def read_plot(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run, oldest first; those that are torn or say no numbers are left out, as are later clocks that
    stand before earlier ones.
    """
    try:
        text = (folder / NAME).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    whole = text[: text.rfind("\n") + 1]
    rows: list[dict[str, Any]] = []
    for line in whole.splitlines():
        row = _row(line.split(","))
        if row is not None and (not rows or row["seconds"] >= rows[-1]["seconds"]):
            rows.append(row)
    return rows


def _row(cells: list[str]) -> dict[str, Any] | None:
    if len(cells) != len(COLUMNS):
        return None
    try:
        counts = {name: int(cell) for name, cell in zip(COLUMNS[1:6], cells[1:6], strict=True)}
        seconds, kinds = float(cells[0]), int(cells[6]) if cells[6] else None
        coverage = float(cells[7]) if cells[7] else None
    except ValueError:
        return None
    whole = (*counts.values(), kinds or 0)
    fine = 0 <= seconds < _LARGEST and 0 <= min(whole) <= max(whole) <= _LARGEST
    fine = fine and (coverage is None or 0 <= coverage <= 1)
    return {"seconds": seconds, **counts, "kinds": kinds, "coverage": coverage} if fine else None


def _text(rows: list[dict[str, Any]]) -> bytes:
    return (",".join(COLUMNS) + "\n").encode() + b"".join(map(_line, rows))


def _line(row: dict[str, Any]) -> bytes:
    coverage = "" if row["coverage"] is None else f"{row['coverage']:.6g}"
    cells = [f"{row['seconds']:.3f}", *(str(row[name]) for name in COLUMNS[1:6])]
    return (",".join([*cells, "" if row["kinds"] is None else str(row["kinds"]), coverage]) + "\n").encode()
