"""Continuous batching: a fixed number of lanes, each working one seed; a finished seed's lane is refilled at once.

A unit is a fixed block of seeds and what is committed together. A few units are open at a time, so lanes stay full
while the last seeds of one unit end. A row's randomness depends on (place of its seed, cycle, step) alone, so neither
the number of lanes nor the company in the batch changes what a seed gives.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from assay.core.cases import Cases, check_made, inside
from assay.core.randomness import Stream
from assay.recipes.recipe import Stages
from assay.subjects.bench import Bench
from assay.subjects.target import answer

WRONG, NONFINITE = 0, 1  # kinds of failure


@dataclass(slots=True)
class Unit:
    """A block of seeds: which are left to do, and what came of those that ended."""

    number: int
    cycle: int
    rows: Tensor  # positions in the seed list, ascending
    ended: Tensor = field(init=False)
    tries: Tensor = field(init=False)
    found: list[Cases] = field(default_factory=list)
    _next: int = 0

    def __post_init__(self) -> None:
        self.ended = torch.zeros(len(self.rows), dtype=torch.bool)
        self.tries = torch.zeros(len(self.rows), dtype=torch.int64)

    def take(self, most: int) -> Tensor:
        """The next slots that have no lane yet."""
        first, self._next = self._next, min(self._next + most, len(self.rows))
        return torch.arange(first, self._next)

    def prefix(self) -> int:
        """How many slots from the start have ended without a gap."""
        gaps = (~self.ended).nonzero()
        return int(gaps[0]) if len(gaps) else len(self.ended)

    def failures(self, slots: Tensor) -> Cases | None:
        """The failures of those slots, in the order of seeds and steps, whatever order the lanes had."""
        if not self.found:
            return None
        every = Cases.cat(self.found)
        keep = torch.zeros(len(self.rows), dtype=torch.bool)
        keep[slots] = True
        every = every[keep[every.info["slot"]]]
        order = (every.info["slot"] * (int(self.tries.max()) + 1) + every.info["step"]).argsort(stable=True)
        return every[order]


class Lanes:
    """The seeds under way."""

    def __init__(
        self,
        bench: Bench,
        stages: Stages,
        seeds: Cases,
        rng: Stream,
        units: Iterator[Unit],
        *,
        width: int,
        open_units: int,
    ) -> None:
        self.bench, self.stages, self.seeds, self.rng = bench, stages, seeds, rng
        self.width, self.most_open = width, open_units
        self.open: list[Unit] = []
        self._units = units
        self._lanes: Cases | None = None

    def step(self) -> bool:
        """One mutation of every lane; False when there is nothing left to do."""
        lanes = self._refilled()
        if lanes is None:
            return False
        info = lanes.info
        rng = self.rng.rows(torch.stack([info["row"], info["cycle"], info["step"]], 1))
        x = check_made(
            self.stages.mutate(self.bench, lanes, rng=rng), lanes.x, f"mutator {self.stages.mutate.entry.name!r}"
        )
        made = lanes.with_x(x)
        made = made.note(logits=answer(self.bench.target, made.x, self.bench.chunks))
        broken = ~made.info["logits"].isfinite().all(1)
        # What lies outside the bounds is no input of the target, and no failure of it either.
        failing = (self.stages.oracle(self.bench, made) | broken) & inside(x, self.bench.target.spec.bounds)
        self._record(made, failing, broken)
        lanes = lanes.note(step=info["step"] + 1, hits=info["hits"] + failing)
        ended = self.stages.schedule(self.bench, lanes)
        self._end(lanes, ended)
        self._lanes = lanes[~ended]
        return True

    def close(self, unit: Unit) -> None:
        """Forget a unit that was committed, with whatever lanes it still has."""
        self.open.remove(unit)
        if self._lanes is not None:
            self._lanes = self._lanes[self._lanes.info["unit"] != unit.number]

    def _refilled(self) -> Cases | None:
        parts = [] if self._lanes is None or not len(self._lanes) else [self._lanes]
        free = self.width - sum(map(len, parts))
        index = 0
        while free > 0:
            if index == len(self.open) and not self._open_next():
                break
            unit = self.open[index]
            slots = unit.take(free)
            if len(slots):
                parts.append(self._fresh(unit, slots))
                free -= len(slots)
            index += 1
        self._lanes = Cases.cat(parts) if parts else None
        return self._lanes

    def _open_next(self) -> bool:
        unit = next(self._units, None) if len(self.open) < self.most_open else None
        if unit is not None:
            self.open.append(unit)
        return unit is not None

    def _fresh(self, unit: Unit, slots: Tensor) -> Cases:
        seeds = self.seeds[unit.rows[slots]].to(self.bench.target.device)
        zero = torch.zeros_like(seeds.origin)
        return Cases(
            seeds.x,
            seeds.y,
            seeds.origin,
            {
                "unit": zero + unit.number,
                "cycle": zero + unit.cycle,
                "slot": slots.to(zero.device),
                "row": unit.rows[slots].to(zero.device),
                "step": zero,
                "hits": zero,
            },
        )

    def _record(self, made: Cases, failing: Tensor, broken: Tensor) -> None:
        if not bool(failing.any()):
            return
        kind = torch.where(broken, NONFINITE, WRONG)
        found = made.note(pred=made.info["logits"].argmax(1), kind=kind).drop("logits", "hits")[failing].to("cpu")
        for unit in self.open:
            mine = found.info["unit"] == unit.number
            if bool(mine.any()):
                unit.found.append(found[mine].drop("unit"))

    def _end(self, lanes: Cases, ended: Tensor) -> None:
        if not bool(ended.any()):
            return
        done = lanes[ended]
        number, slot, tries = (done.info[name].cpu() for name in ("unit", "slot", "step"))
        for unit in self.open:
            mine = number == unit.number
            unit.ended[slot[mine]] = True
            unit.tries[slot[mine]] = tries[mine]
