"""What only a run folder names: code and addresses, used where this user made the run here, else refused.

A run remembers its model, oracle and data by the text they were named by, and that text may be ``file.py:function``,
``cmd:…`` or ``http://…``. In a folder that came from somewhere else it is somebody else's text: nothing it names is
run, and nothing is sent there, unless the user says so.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from assay.core.errors import UsageError
from assay.core.files import sha256
from assay.core.journal import Line, read

log = logging.getLogger("assay")

_FILE = re.compile(r"([^\s(,=\"']*)\.py:")  # where a text names a Python file, and what stands before
_SOURCE = re.compile(
    r"\s*(?:(cmd|call|https?|hf|timm|torchvision):|(?:dir:|[^\s@]*@)?[a-z][a-z0-9+.-]+://)", re.IGNORECASE
)

# Options that name files or trackers, and where workers are, who are sent the model and send back objects.
_WRITES = ("log", "out", "history", "junit", "sarif", "markdown", "ray")

_named_by: ContextVar[Callable[[str], None] | None] = ContextVar("named_by", default=None)
_trusting: ContextVar[bool] = ContextVar("trusting", default=False)
_remote_code: ContextVar[bool] = ContextVar("remote_code", default=False)


@contextmanager
def trusting(trust: bool = True) -> Iterator[None]:
    """Run what run folders name, for the length of the block: ``--trust-run``."""
    before = _trusting.set(trust)
    try:
        yield
    finally:
        _trusting.reset(before)


@contextmanager
def trusting_code(trust: bool = True) -> Iterator[None]:
    """Run code of hub repositories that need it, for the length of the block: ``--trust-remote-code``."""
    before = _remote_code.set(trust)
    try:
        yield
    finally:
        _remote_code.reset(before)


def runs_remote_code() -> bool:
    """Whether the user said that code of hub repositories may run."""
    return _remote_code.get()


@contextmanager
def named_by(run: str, begins: Sequence[Line]) -> Iterator[None]:
    """What is loaded in this block was named by a run folder alone; ``begins`` are the first lines it stands in."""

    def check(what: str) -> None:
        if not _trusting.get() and not _are_own(begins):
            raise UsageError(
                f"run {run} names {what!r}, and no command of yours made that run in this folder (none is noted in the "
                "cache): it is neither run nor sent anything. Where the run is yours, go to the folder where you made "
                "it, or repeat the command; else look at what it names, then give --trust-run, or name your own "
                "(--model, --with, --training)"
            )

    before = _named_by.set(check)
    try:
        yield
    finally:
        _named_by.reset(before)


def check(what: str) -> None:
    """Refuse to run a file or a program, or to ask an address, that only a run folder of someone else names."""
    refuse = _named_by.get()
    if refuse is not None:
        refuse(what)


def remember(begin: Line) -> None:
    """Note that a command of this user named what the run names. Most runs name nothing of the kind."""
    if not any(map(_is_code, _texts(begin.meta))):
        return
    _note(_place(begin))


def _note(place: Path) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    except OSError as error:
        log.warning("cannot note in %s that this run is yours: %s", place.parent, error.strerror)


def remember_config(content: bytes, config: Mapping[str, Any]) -> None:
    """Note that a command of this user wrote the ``campaign.toml`` with that content, where it names such things."""
    if _reaches_out(config):
        _note(_config_place(content, config))


def check_config(path: Path, content: bytes, config: Mapping[str, Any]) -> None:
    """Refuse the configuration of a run folder that came from somewhere else, where it names code or addresses to use
    or files to write. One that lies elsewhere is the user's own text.
    """
    if not (path.parent / "journal.jsonl").exists() or not _reaches_out(config):
        return
    if not (_trusting.get() or _config_place(content, config).is_file() or _says_no_more(path.parent, config)):
        raise UsageError(
            f"{path} is of a run that no command of yours made in this folder (none is noted in the cache), and it "
            "names code or an address to use, or a file to write: nothing of it is done. Where the run is yours, go to "
            "the folder where you made it; else look at what it names, copy it to a file of your own and give that"
        )


def _says_no_more(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether it only names what the first line of a run of one's own names: older runs are noted by that alone."""
    lines, _, _ = read(folder / "journal.jsonl")
    if not lines or not is_own(lines[0]):
        return False
    was = lines[0].meta.get("identity", {})
    return not _reaches_out({name: table for name, table in config.items() if table != was.get(name)})


def is_own(begin: Line) -> bool:
    """Whether a command of this user made a run with that first line, here."""
    return _place(begin).is_file()


def _are_own(begins: Sequence[Line]) -> bool:
    """Whether this user made all of the runs that name code or an address; where none does, it stands elsewhere."""
    naming = [line for line in begins if any(map(_is_code, _texts(line.meta)))]
    return bool(naming) and all(map(is_own, naming))


def _place(begin: Line) -> Path:
    return _noted(begin.encode(), begin.meta)


def _config_place(content: bytes, config: Mapping[str, Any]) -> Path:
    return _noted(b"campaign.toml\n" + content, config)


def _noted(content: bytes, told: Any) -> Path:
    # Relative names mean other files elsewhere: such a run is one's own in the folder it was made in only.
    from assay.core.cache import cache_folder  # which knows torch; whoever only looks at runs does without

    here = str(Path.cwd()) if any(map(_is_relative, _texts(told))) else ""
    return cache_folder() / "own-runs" / sha256(content + here.encode("utf-8", "surrogateescape"))


def _reaches_out(config: Mapping[str, Any]) -> bool:
    """Whether a configuration names code, an address, or a place where the command would write."""
    if any(map(_is_code, _texts(config))):
        return True
    tables = (table for table in config.values() if isinstance(table, Mapping))
    return any(key in _WRITES and value for table in tables for key, value in table.items())


def _is_code(text: str) -> bool:
    return _FILE.search(text) is not None or _SOURCE.match(text) is not None


def _is_relative(text: str) -> bool:
    source = _SOURCE.match(text)
    files = (found[1].rpartition(":")[2] for found in _FILE.finditer(text))
    command = source is not None and (source[1] or "").lower() == "cmd"
    return command or any(not file.startswith("/") for file in files)


def _texts(value: Any) -> Iterator[str]:
    """Every text in nested facts."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from (str(key), *_texts(inner))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner)
