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
from assay.stages.objective import Look
from assay.stages.schedules import Schedule
from assay.subjects.bench import Bench

WRONG, NONFINITE = 0, 1  # kinds of failure
# The share of lanes that may stand idle when no seed is left for them. Each size of batch that a GPU has not met costs
# it more than many idle lanes do; on a CPU an idle lane costs a pass.
IDLE = {"cuda": 0.5}


@dataclass(slots=True)
class Unit:
    """A block of seeds: which are left to do, and what came of those that ended."""

    number: int
    cycle: int
    rows: Tensor  # positions in the seed list, ascending
    rules: int = 0  # of keeping
    ended: Tensor = field(init=False)
    tries: Tensor = field(init=False)
    fired: Tensor = field(init=False)
    found: list[Cases] = field(default_factory=list)
    tried: int = 0  # cases of its seeds that ended
    waiting: int = 0  # failures found
    _next: int = 0

    def __post_init__(self) -> None:
        self.ended = torch.zeros(len(self.rows), dtype=torch.bool)
        self.tries = torch.zeros(len(self.rows), dtype=torch.int64)
        self.fired = torch.zeros(len(self.rows), self.rules, dtype=torch.int64)

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
        schedule: Schedule,
        look: Look,
        seeds: Cases,
        rng: Stream,
        units: Iterator[Unit],
        *,
        width: int,
        open_units: int,
    ) -> None:
        self.bench, self.stages, self.schedule, self.look = bench, stages, schedule, look
        self.seeds, self.rng = seeds, rng
        self.width, self.most_open = width, open_units
        self.open: list[Unit] = []
        self._units = units
        self._lanes: Cases | None = None

    def step(self) -> bool:
        """One mutation of every lane; False when there is nothing left to do."""
        lanes = self._refilled()
        if lanes is None:
            return False
        made = self._made(lanes)
        info, opening = lanes.info, lanes.info["opening"]
        broken = ~made.info["logits"].isfinite().all(1)
        # What lies outside the bounds is no input of the target, and no failure of it either.
        good = inside(made.x, self.bench.target.spec.bounds) & ~opening & ~info["ended"]
        for rule in self.stages.valid.values():
            good &= rule(self.bench, made)
        failing = (self.stages.oracle(self.bench, made) | broken) & good
        fired = self._fired(made, good)
        kept = fired.any(1) if self.stages.keep else good
        lanes = lanes.note(step=info["step"] + ~opening, fired=info["fired"] + fired, **self._memory(lanes, made, kept))
        after = self.schedule.next(lanes, made, kept | opening, failing)
        self._record(made.note(step=lanes.info["step"]), after.stored, broken)
        self._end(after.lanes, after.ended & ~info["ended"])
        self._lanes = after.lanes.note(ended=after.ended | info["ended"], opening=torch.zeros_like(opening))
        return True

    def close(self, unit: Unit) -> None:
        """Forget a unit that was committed, with whatever lanes it still has."""
        self.open.remove(unit)
        if self._lanes is not None:
            gone = self._lanes.info["ended"] | (self._lanes.info["unit"] == unit.number)
            self._lanes = self._lanes.note(ended=gone)

    def cut_short(self) -> None:
        """End every seed under way where it stands."""
        if self._lanes is not None:
            going = ~self._lanes.info["ended"]
            self._end(self._lanes, going)
            self._lanes = self._lanes.note(ended=torch.ones_like(going))

    def at(self, seeds: Cases) -> Cases:
        """Lanes that stand at these seeds, nothing looked at yet."""
        seeds = seeds.to(self.bench.target.device)
        zero = torch.zeros_like(seeds.origin)
        climbs = bool(self.look.objective)
        columns = {
            "seed_x": seeds.x,
            "step": zero,
            "opening": torch.full_like(zero, climbs, dtype=torch.bool),
            "ended": torch.zeros_like(zero, dtype=torch.bool),
            "fired": zero[:, None].expand(-1, len(self.stages.keep)).clone(),
        }
        if climbs:
            columns["slope"] = torch.zeros_like(seeds.x)
            columns["seed_logits"] = seeds.x.new_zeros(len(seeds), len(self.bench.target.spec.classes))
        columns |= {f"best_{name}": seeds.x.new_full((len(seeds),), -torch.inf) for name in self.stages.score}
        return self.schedule.start(Cases(seeds.x.clone(), seeds.y, seeds.origin, columns))

    def _made(self, lanes: Cases) -> Cases:
        """The next case of every lane, looked at."""
        info = lanes.info
        rng = self.rng.rows(torch.stack([info["row"], info["cycle"], info["step"]], 1))
        mutate = self.stages.mutate
        x = check_made(mutate(self.bench, lanes, rng=rng), lanes.x, f"mutator {mutate.entry.name!r}")
        return self.look(self.bench, lanes.with_x(x).note(before_x=lanes.x))

    def _fired(self, made: Cases, good: Tensor) -> Tensor:
        """Which rule keeps which case, (N, rules)."""
        verdicts = [rule(self.bench, made) & good for rule in self.stages.keep.values()]
        return torch.stack(verdicts, 1) if verdicts else good.new_zeros(len(good), 0)

    def _memory(self, lanes: Cases, made: Cases, kept: Tensor) -> dict[str, Tensor]:
        """What a lane remembers of its seed: the target's answer to it, and the best of each score that was kept."""
        memory: dict[str, Tensor] = {}
        if "seed_logits" in lanes.info:
            opening = lanes.info["opening"][:, None]
            memory["seed_logits"] = torch.where(opening, made.info["logits"], lanes.info["seed_logits"])
        for name in self.stages.score:
            best = lanes.info[f"best_{name}"]
            memory[f"best_{name}"] = torch.where(kept, torch.maximum(best, made.info[name]), best)
        return memory

    def _refilled(self) -> Cases | None:
        """The lanes with fresh seeds in the places of those that ended."""
        lanes = self._lanes
        ended = None if lanes is None else lanes.info["ended"].nonzero().squeeze(1)
        fresh = self._fresh(self.width - (0 if lanes is None or ended is None else len(lanes) - len(ended)))
        if lanes is None or ended is None:
            self._lanes = fresh
        elif fresh is not None and len(fresh) == len(ended):
            _put(lanes, ended, fresh)  # nothing is copied but the new rows
        elif fresh is not None or len(ended) > IDLE.get(self.bench.target.device.type, 0.0) * len(lanes):
            left = lanes[~lanes.info["ended"]]
            parts = [part for part in (left, fresh) if part is not None and len(part)]
            self._lanes = Cases.cat(parts) if parts else None
        return self._lanes

    def _fresh(self, free: int) -> Cases | None:
        parts: list[Cases] = []
        index = 0
        while free > 0:
            if index == len(self.open) and not self._open_next():
                break
            unit = self.open[index]
            slots = unit.take(free)
            if len(slots):
                parts.append(self._placed(unit, slots))
                free -= len(slots)
            index += 1
        return Cases.cat(parts) if parts else None

    def _open_next(self) -> bool:
        unit = next(self._units, None) if len(self.open) < self.most_open else None
        if unit is not None:
            self.open.append(unit)
        return unit is not None

    def _placed(self, unit: Unit, slots: Tensor) -> Cases:
        """Lanes at the seeds of a unit that have none yet."""
        lanes = self.at(self.seeds[unit.rows[slots]])
        zero = torch.zeros_like(lanes.origin)
        return lanes.note(
            unit=zero + unit.number,
            cycle=zero + unit.cycle,
            slot=slots.to(zero.device),
            row=unit.rows[slots].to(zero.device),
        )

    def _record(self, made: Cases, stored: Tensor, broken: Tensor) -> None:
        if not bool(stored.any()):
            return
        kind, pred = torch.where(broken, NONFINITE, WRONG), made.info["logits"].argmax(1)
        names = ("unit", "slot", "row", "cycle", "step", *self.stages.score)
        columns = {name: made.info[name] for name in names} | {"kind": kind, "pred": pred}
        found = Cases(made.x, made.y, made.origin, columns)[stored].to("cpu")
        for unit, mine in self._apart(found.info["unit"]):
            unit.found.append(found[mine].drop("unit"))
            unit.waiting += int(mine.sum())

    def _end(self, lanes: Cases, ended: Tensor) -> None:
        if not bool(ended.any()):
            return
        number, slot, tries, fired = (lanes.info[n][ended].cpu() for n in ("unit", "slot", "step", "fired"))
        for unit, mine in self._apart(number):
            unit.ended[slot[mine]] = True
            unit.tries[slot[mine]] = tries[mine]
            unit.fired[slot[mine]] = fired[mine]
            unit.tried += int(tries[mine].sum())

    def _apart(self, numbers: Tensor) -> Iterator[tuple[Unit, Tensor]]:
        """The units of these rows, each with the rows that are its own."""
        for number in numbers.unique().tolist():
            yield next(unit for unit in self.open if unit.number == number), numbers == number


def _put(lanes: Cases, rows: Tensor, fresh: Cases) -> None:
    """Write rows of lanes over, in place."""
    if not len(rows):
        return
    pairs = ((lanes.x, fresh.x), (lanes.y, fresh.y), (lanes.origin, fresh.origin))
    for column, new in (*pairs, *((lanes.info[name], new) for name, new in fresh.info.items())):
        column[rows] = new
