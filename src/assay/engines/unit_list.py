"""The units of a campaign that are left to do, in order."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.randomness import Stream
from assay.core.store import Store
from assay.engines.found import finished_slots
from assay.engines.parents import Parents
from assay.engines.trouble import Trouble
from assay.engines.unit import Unit
from assay.engines.waves import Waves


@dataclass(frozen=True, slots=True)
class UnitList:
    """Blocks of ``size`` seeds, or with a pool as many parents drawn from it; ``rules`` are counted of each."""

    folder: Store
    seeds: int
    size: int
    rules: int
    rng: Stream
    waves: Waves
    trouble: Trouble
    parents: Parents | None

    def one_by_one(self, *, endless: bool) -> Iterator[Unit]:
        """For work in this process: a unit begins when it is taken."""
        for units in self.by_wave(endless=endless):
            for unit in units:
                self.waves.open(unit.number)
                yield unit

    def by_wave(self, *, endless: bool) -> Iterator[list[Unit]]:
        """Wave after wave, less what is committed: one cycle over the seeds, or cycle after cycle.

        With a pool, parents are drawn from it as it stood when the wave began: a wave is asked for when all units of
        the one before are committed.
        """
        done = finished_slots(self.folder)
        count = math.ceil(self.seeds / self.size)
        first = 0
        while endless or first < count:
            last = first + self.waves.size
            numbers = range(first, last if endless else min(last, count))
            units = self._blocks(numbers, done) if self.parents is None else self._drawn(numbers, done, self.parents)
            if units:
                yield units
            first = last

    def _blocks(self, numbers: range, done: dict[int, Tensor]) -> list[Unit]:
        units = []
        for number in numbers:
            cycle, block = divmod(number, math.ceil(self.seeds / self.size))
            rows = torch.arange(block * self.size, min((block + 1) * self.size, self.seeds))
            if number in done:
                rows = rows[~torch.isin(rows, done[number])]
            if len(rows) and number not in self.trouble.passed_over:
                units.append(Unit(number, cycle, rows, self.rules))
        return units

    def _drawn(self, numbers: range, done: dict[int, Tensor], parents: Parents) -> list[Unit]:
        done = done | {unit.number: unit.rows for unit, _ in self.trouble.held}
        if all(number in done for number in numbers):
            return []
        pool, units = self.waves.parents(numbers[0], parents), []
        for number in numbers:
            if number in done:
                pool.take(done[number])
                continue
            rows = pool.pick(min(self.size, len(pool)), self.rng.at("pick", number))
            units.append(Unit(number, number, rows, self.rules, pool.cases(rows)))
            pool.take(rows)
        return units
