"""Things that a stage fits before it can work (a generator, a reference net): made once, found again afterwards.

Looked for in the run at hand, then in the cache, by a key that is a digest of all the thing depends on, so that one
thing serves many targets and runs; made where it is in neither.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from assay.core.cache import remembered
from assay.stages.trainers.watch import Unwatched, Watch
from assay.subjects.bench import Bench

WORKSHOP = "workshop"  # where a bench keeps the one of its run
REHEARSAL = "rehearsal"  # there while stages are only tried: nothing is made then

Columns = dict[str, Tensor]


class NotYet(Exception):
    """In a rehearsal: all that comes before the making is right."""


class Shown(NamedTuple):
    """What people may see of a thing: JSON values, and pictures as PNG by the name of their file."""

    facts: dict[str, Any]
    pictures: Mapping[str, bytes] = {}


class Workshop(Protocol):
    """A run in which things are made."""

    def find(self, what: str, key: str) -> Columns | None:
        """The thing as this run has it."""
        ...

    def watch(self, what: str, key: str) -> Watch:
        """Who looks on while it is trained: tells how far it is, and lets a training that was stopped go on."""
        ...

    def keep(self, what: str, key: str, columns: Columns, shown: Shown) -> None:
        """Keep it in the run, for good."""
        ...


def made(
    bench: Bench,
    what: str,
    key: str,
    make: Callable[[Watch], Columns],
    fits: Callable[[Columns], bool],
    show: Callable[[Columns], Shown],
) -> Columns:
    """The thing of that key, as tensors by name; ``what`` is its kind, one word. NotYet in a rehearsal."""
    if REHEARSAL in bench.kept:
        raise NotYet
    return bench.once(f"{what} {key}", lambda: _found_or_made(bench.kept.get(WORKSHOP), what, key, make, fits, show))


def _found_or_made(
    workshop: Workshop | None,
    what: str,
    key: str,
    make: Callable[[Watch], Columns],
    fits: Callable[[Columns], bool],
    show: Callable[[Columns], Shown],
) -> Columns:
    found = None if workshop is None else workshop.find(what, key)
    if found is not None and fits(found):
        return found
    watch: Watch = Unwatched() if workshop is None else workshop.watch(what, key)
    columns = remembered(what, key, lambda: make(watch), fits)
    if workshop is not None:
        workshop.keep(what, key, columns, show(columns))
    return columns
