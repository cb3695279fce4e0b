"""What the folder that a remote run is worked in had in common with the store: so that only what differs travels.

Lines are added as things happen and nothing is made durable: what is lost is fetched or compared again.
"""

import json
import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Seen(NamedTuple):
    """A file as it lay here, and the token of the object with the same content."""

    size: int
    changed: int  # the file's time in nanoseconds
    token: str


class Record:
    """The files that were the same on both sides, by their names in the run; ``scratch`` names the folder itself."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.load()

    def load(self) -> None:
        """Read what other processes may have added."""
        self.scratch = uuid.uuid4().hex
        self._seen: dict[str, Seen] = {}
        with suppress(OSError):
            for line in self.path.read_text(encoding="utf-8").splitlines():
                try:
                    told = json.loads(line)
                except ValueError:  # a kill cut it
                    continue
                if isinstance(told, str):
                    self.scratch = told
                elif isinstance(told, list) and len(told) == 4:
                    self._seen[told[0]] = Seen(*told[1:])
                elif isinstance(told, list) and len(told) == 1:
                    self._seen.pop(told[0], None)

    def names(self) -> list[str]:
        return list(self._seen)

    def token(self, name: str) -> str | None:
        """The token of the object when both sides were the same."""
        seen = self._seen.get(name)
        return None if seen is None else seen.token

    def unchanged(self, name: str, here: os.stat_result) -> bool:
        """Whether the file here is as it was then."""
        seen = self._seen.get(name)
        return seen is not None and (seen.size, seen.changed) == (here.st_size, here.st_mtime_ns)

    def note(self, name: str, here: os.stat_result | None, token: str) -> None:
        """Both sides are the same, the file being so before it was read; some objects have no file of their own."""
        size, changed = (0, 0) if here is None else (here.st_size, here.st_mtime_ns)
        self._seen[name] = Seen(size, changed, token)
        self._write([name, *self._seen[name]])

    def forget(self, name: str) -> None:
        if self._seen.pop(name, None) is not None:
            self._write([name])

    def compact(self) -> None:
        """Write what holds now, and nothing that no longer does."""
        lines = [json.dumps(self.scratch), *(json.dumps([name, *seen]) for name, seen in self._seen.items())]
        temporary = self.path.with_name(f"{self.path.name}.tmp")
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
        temporary.replace(self.path)

    def _write(self, told: list[object]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")
