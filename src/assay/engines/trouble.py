"""Units on which the model failed: tried again alone, then skipped and counted; a model that fails on most ends it.

A unit is a pure function of its seeds and steps, so that doing it again changes nothing. Skips are committed with the
first unit that goes well: before, nobody knows whether the model works at all, and the same command tries them again.
"""

import logging
from typing import Any

from assay.core.errors import ModelFailed
from assay.core.store import Store
from assay.engines.unit import Unit

log = logging.getLogger("assay")

FEW = 3  # units skipped before a model is said to fail on most


class Trouble:
    """What the model failed on, in this run and now."""

    def __init__(self, folder: Store) -> None:
        self.folder = folder
        done = [line.meta for line in folder.commits("fuzz")]
        skipped = [meta for meta in done if "skipped" in meta["counts"]]
        self.good = len({meta["unit"] for meta in done if "skipped" not in meta["counts"]})
        self.bad = len(skipped)
        self.now = 0  # of them in this session: what an earlier one met may be mended
        self.held: list[tuple[Unit, str]] = []  # skipped, and not committed yet
        self.suspects: set[int] = set()  # open when the model failed, and not done since

    @property
    def passed_over(self) -> set[int]:
        """The units that are not to be opened again, besides those that are committed."""
        return {unit.number for unit, _ in self.held}

    def met(self, units: list[Unit], error: ModelFailed) -> Unit | None:
        """The model failed with these units open: the one to skip, None where all are to be tried again."""
        if len(units) == 1 and units[0].number in self.suspects:
            self.suspects.discard(units[0].number)
            self.bad += 1
            self.now += 1
            self.held.append((units[0], str(error)))
            log.warning("%d seeds are skipped (unit %d): %s", len(units[0].rows), units[0].number, error)
            return units[0]
        if not self.suspects:
            log.warning("%s; the seeds under way are tried once more", error)
        self.suspects |= {unit.number for unit in units}
        return None

    def over(self, unit: Unit) -> None:
        """A unit went well."""
        self.suspects.discard(unit.number)
        self.good += 1

    def commit(self) -> list[dict[str, Any]]:
        """Commit what was skipped; what the journal says of each."""
        lines = []
        while self.held:
            unit, error = self.held[0]
            facts = {"counts": {"skipped": len(unit.rows)}, "kept": {}, "error": error}
            self.folder.commit({}, kind="fuzz", unit=unit.number, rows=unit.rows.tolist(), **facts)
            lines.append(facts)
            del self.held[0]
        return lines

    def judge(self, *, ended: bool = False) -> None:
        """End a run of a model that fails on most of it; when it ``ended``, of one that fails on all."""
        if not self.now or self.bad <= self.good or not (self.bad >= FEW or (ended and not self.good)):
            return
        before = [line.meta for line in self.folder.commits("fuzz") if "error" in line.meta]
        first = before[0]["error"] if before else self.held[0][1]
        seeds = sum(meta["counts"]["skipped"] for meta in before)
        stay = f"; the {seeds} seeds that were skipped stay so, --fresh works them too" if seeds else ""
        raise ModelFailed(
            f"the model fails on {self.bad} of {self.bad + self.good} units of seeds, each tried twice: "
            f"{first}; mend it, or leave out the inputs it cannot take; what was committed is kept, "
            f"the same command goes on from there{stay}"
        )
