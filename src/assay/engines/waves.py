"""Waves: units that all begin with what was known when their wave began, so that they may be worked at once.

What a unit learns (what is covered, which neurons pay, who joins the pool) is merged when it is committed, in the order
of units, and counts from the next wave on. Who works a unit, and when, then changes nothing. A run that stops inside a
wave goes on from the state the wave began with, which is kept beside the merged one.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from assay.core.errors import UsageError
from assay.core.store import Store
from assay.engines.guidance import Guidance, Known, last_unit
from assay.engines.parents import Parents
from assay.stages.coverage.bitmap import Bitmap
from assay.stages.coverage.tknp import Patterns

WAVE = 4  # units, where bytes are to be the same on any number of workers


def wave_of(asked: int | str, begun: Mapping[str, Any], guidance: Guidance, *, at_once: bool) -> int:
    """How many units a wave has: as asked, as a run ``begun`` has it, else more than one where they may be worked
    ``at_once``.
    """
    if asked != "auto" and (not isinstance(asked, int) or asked < 1):
        raise UsageError(f"wave is auto or a number of units from 1 up, got {asked!r}")
    merges = guidance.chooser is None or all(hasattr(guidance.chooser, name) for name in ("news", "merge"))
    if isinstance(asked, int):
        if asked > 1 and not merges:
            raise UsageError("this strategy cannot merge what units learnt apart (it has no news, merge): --wave 1")
        return asked
    if begun:
        return int(begun.get("wave", 1))
    return WAVE if at_once and merges else 1


class Waves:
    """Where the waves of one campaign stand."""

    def __init__(self, size: int, guidance: Guidance) -> None:
        self.size, self.guidance = size, guidance
        # Cells that are covered twice are covered once; other criteria must be told what a unit added, and that alone.
        if size > 1 and guidance.coverage is not None and not isinstance(guidance.coverage, Bitmap | Patterns):
            guidance.added = deepcopy(guidance.coverage)
            guidance.blank = guidance.added.state()
        self.known: Known = {}
        self._at: int | None = None
        self._base: Known = {}
        self._pool_at: int | None = None
        self._pool: Parents | None = None

    def replay(self, parents: Parents, run: Store) -> None:
        """Bring the pool to where the commits of a run have it, and keep how it was when their last wave began."""
        units = [int(line.meta["unit"]) for line in run.commits("fuzz")]
        first = max(units, default=0) // self.size * self.size
        parents.replay(run, lambda unit: unit < first)
        self._pool_at, self._pool = first // self.size, parents.copy()
        parents.replay(run, lambda unit: unit >= first)

    def begin(self, run: Store) -> None:
        """The campaign is prepared: what is known now is what it goes on from."""
        self.known = self.guidance.known()
        unit = last_unit(run)
        if self.guidance.base is not None and unit is not None:
            self._at, self._base = unit // self.size, self.guidance.base

    def base(self, number: int) -> Known:
        """What the units of this one's wave begin with; all units of the wave before are committed."""
        if self._at != number // self.size:
            self._at, self._base = number // self.size, self.known
        return self._base

    def parents(self, number: int, parents: Parents) -> Parents:
        """The pool as it was when the wave of a unit began, to draw from; all units before it are committed."""
        if self._pool is None or self._pool_at != number // self.size:
            self._pool_at, self._pool = number // self.size, parents.copy()
        return self._pool.copy()

    def open(self, number: int) -> None:
        """A unit is worked in this process from now on."""
        if self.size > 1:
            self.guidance.begin_unit(self.base(number))

    def news(self) -> Known:
        """What the unit under way has learnt."""
        return self.guidance.news() if self.size > 1 else self.guidance.known()

    def commit(self, number: int, news: Known) -> None:
        """Learn what a unit has learnt; the guidance is then that of all units up to this one."""
        if self.size == 1:
            self.guidance.back_to(news)
        else:
            base = self.base(number)
            self.guidance.back_to(self.known)
            self.guidance.merge(news)
            self.guidance.base = base if (number + 1) % self.size else None  # of a whole wave nobody asks for it again
        self.known = self.guidance.known()
