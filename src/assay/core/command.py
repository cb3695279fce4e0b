"""The command under way, as every run that it makes tells it: so that the same can be asked again."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

TABLE = "command"
_now: ContextVar[Mapping[str, Any] | None] = ContextVar("assay_command", default=None)


@contextmanager
def under_way(verb: str, options: Mapping[str, Any]) -> Iterator[None]:
    """Until it ends, runs are made by this command."""
    before = _now.set({"verb": verb, **options})
    try:
        yield
    finally:
        _now.reset(before)


def command_table() -> dict[str, Any]:
    """The command as a table of a run's configuration; nothing where work was called from Python."""
    told = _now.get()
    return {} if told is None else {TABLE: dict(told)}
