"""Rows of an experiment: one JSON object a line with its whole protocol; a row that is there is not computed again."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

Protocol = Mapping[str, Any]
Row = dict[str, Any]


class Rows:
    """A JSONL file that grows row by row. A line cut short by a kill is dropped when the file is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.all = _read(path)
        self._writing = threading.Lock()
        self._known = {key(row["protocol"]) for row in self.all}

    def __iter__(self) -> Iterator[Row]:
        return iter(self.all)

    def has(self, protocol: Protocol) -> bool:
        return key(protocol) in self._known

    def fill(self, protocol: Protocol, compute: Callable[[], Mapping[str, Any]]) -> Row:
        """Compute the numbers of that protocol and append them."""
        row = {"protocol": dict(protocol), "numbers": dict(compute())}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._writing, self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            self.all.append(row)
            self._known.add(key(protocol))
        return row

    def drop(self, gone: Callable[[Row], bool]) -> None:
        """Take rows out again, of the file too."""
        with self._writing:
            self.all = [row for row in self.all if not gone(row)]
            self._known = {key(row["protocol"]) for row in self.all}
            if self.path.exists():
                self.path.write_text("".join(json.dumps(row) + "\n" for row in self.all), encoding="utf-8")


def key(protocol: Protocol) -> str:
    """What makes two rows the same row."""
    return json.dumps(protocol, sort_keys=True)


def _read(path: Path) -> list[Row]:
    if not path.exists():
        return []
    whole, newline, rest = path.read_text(encoding="utf-8").rpartition("\n")
    if rest:
        path.write_text(whole + newline, encoding="utf-8")
    return [json.loads(line) for line in whole.splitlines()]
