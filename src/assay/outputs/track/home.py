"""Where a sink writes that is given no place: the run folder, or beside the file that the command writes."""

from dataclasses import dataclass
from pathlib import Path

from assay.core.errors import UsageError


@dataclass(slots=True)
class Home:
    """The folder of a run, known once the run is open; ``named_by`` is the option that makes the command keep one.

    ``prefix`` goes before the names of files in a folder that is no run's.
    """

    folder: Path | None = None
    prefix: str = ""
    expected: bool = True
    named_by: str = "--run NAME"
    name: str = ""

    def check(self, sink: str, place: str) -> None:
        """Refuse, before the work, a sink that would have no place to write to."""
        if self.folder is None and not self.expected:
            raise UsageError(f"--log {sink} has no run folder to write to; give {self.named_by}, or {sink}:{place}")

    def place(self, name: str) -> Path:
        """Where a file or folder of that name goes."""
        if self.folder is None:
            raise UsageError(f"there is no folder to write {name} to")
        return self.folder / f"{self.prefix}{name}"
