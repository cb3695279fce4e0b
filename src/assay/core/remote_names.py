"""The names of a run's objects, and of its files: which of them travel, and which are part of a commit."""

import re
from collections.abc import Iterator
from pathlib import Path

from assay.core.files import TEMPORARY
from assay.core.repair import COMMITTED, GUIDANCE, QUARANTINE

JOURNAL = "journal.jsonl"  # here; in the store each line is an object
LINE = re.compile(rf"(?!{QUARANTINE}/)((?:[^/]+/)*)journal/(\d{{6,}})\.json")


def line_name(inside: str, step: int) -> str:
    """The object of a commit; ``inside`` stands before it where the run lies in another one."""
    return f"{inside}journal/{step:06d}.json"


def is_strict(name: str) -> bool:
    """Whether a file is part of a commit: then the store has the right one, whatever lies here."""
    parts = name.split("/")
    return len(parts) > 1 and parts[-2] in (*COMMITTED, GUIDANCE) and parts[0] != QUARANTINE


def local_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """The files of a run that travel as they are, by their names in it."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        kept_here = path.name == "LOCK" or path.name.endswith(TEMPORARY)
        if not kept_here and (path.name != JOURNAL or name.startswith(f"{QUARANTINE}/")) and path.is_file():
            yield name, path
