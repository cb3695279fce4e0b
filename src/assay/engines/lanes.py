"""Continuous batching: a fixed number of lanes, each working one seed; a finished seed's lane is refilled at once.

A unit is a fixed block of seeds and what is committed together. A few units are open at a time, so lanes stay full
while the last seeds of one unit end. A row's randomness depends on (place of its seed, cycle, step) alone, so neither
the number of lanes nor the company in the batch changes what a seed gives.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from assay.core.cases import MINED, Cases, check_made, inside
from assay.core.randomness import Rows, Stream
from assay.core.shapes import column
from assay.core.transfers import moved, moved_one
from assay.engines.guidance import Guidance
from assay.engines.noted import Noted
from assay.engines.operators import COLUMN, brought, operators_of
from assay.engines.parents import blank_line, lane_columns, own_columns
from assay.engines.unit import NONFINITE, WRONG, Unit, apart, join, record
from assay.recipes.recipe import Stages
from assay.stages.objective import Look, at_seed
from assay.stages.schedules import Pooled, Schedule
from assay.stages.strategies import PUSHED
from assay.subjects.bench import Bench

__all__ = ["NONFINITE", "WRONG", "Lanes", "rules_of"]

# The share of lanes that may stand idle when no seed is left for them. Each size of batch that a GPU has not met costs
# it more than many idle lanes do; on a CPU an idle lane costs a pass.
IDLE = {"cuda": 0.5}


def rules_of(stages: Stages) -> int:
    """How many things are counted of a seed's cases: rules of keeping, then opinions, then the operators' cases and
    failures, then whether a case is valid at all.
    """
    return len(stages.keep) + len(stages.opinions) + 2 * len(operators_of(stages.mutate)) + 1


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
        guidance: Guidance,
        *,
        width: int,
        open_units: int,
    ) -> None:
        self.bench, self.stages, self.schedule, self.look = bench, stages, schedule, look
        self.seeds, self.rng = seeds, rng
        self.guidance = guidance
        self.width, self.most_open = width, open_units
        self.late = bench.target.device.type == "cuda"  # what a step brought is looked at when the next one begins
        self.open: list[Unit] = []
        self._units = units
        self._lanes: Cases | None = None
        self._noted: Noted | None = None  # what the last step brought, as long as nobody has looked
        self._idle: Tensor | None = None  # lanes whose seeds ended, on the CPU; None where that must be looked up
        self._own_forms: dict[str, Tensor] | None = None
        self._operators = len(operators_of(stages.mutate))

    def step(self) -> bool:
        """One mutation of every lane; False when there is nothing left to do.

        On a GPU it returns before the work is done: what became of it is noted when the next step begins, so that
        commits are made meanwhile.
        """
        settled = self.settle()
        lanes = self._refilled()
        if lanes is None:
            return settled  # units that ended just now make room for others once they are committed
        made = self._made(lanes)
        lanes = self._with_memory(lanes, made)
        info, opening = lanes.info, lanes.info["opening"]
        broken = ~made.info["logits"].isfinite().all(1)
        # What lies outside the bounds is no input of the target, and no failure of it either.
        good = inside(made.x, self.bench.target.spec.bounds) & ~opening & ~info["ended"]
        for rule in self.stages.valid.values():
            good &= rule(self.bench, made)
        failing = (self.stages.oracle(self.bench, made) | broken) & good
        if self.guidance.coverage is not None:
            made = made.note(gain=self._gains(made, good, failing, broken))
        fired = self._fired(made, good, failing)
        kept = fired[:, : len(self.stages.keep)].any(1) if self.stages.keep else good
        if self.guidance.chooser is not None:
            lanes = self.guidance.chooser.learn(lanes, self.bench.seen(made), failing, good)
        lanes = lanes.note(step=info["step"] + ~opening, fired=info["fired"] + fired, **self._memory(lanes, made, kept))
        after = self.schedule.next(lanes, made, kept | opening, failing)
        now = made.note(step=lanes.info["step"])
        joins = (
            self.schedule.joins(kept, failing, info["depth"])
            if isinstance(self.schedule, Pooled)
            else torch.zeros_like(kept)
        )
        idle = after.ended | info["ended"]
        self._noted = Noted.of(now, broken, after.lanes, (after.stored, joins, after.ended & ~info["ended"], idle))
        look = after.lanes.info.get("look", torch.zeros_like(opening))
        # A copy: rows are refilled in place, and one memory for both columns would lose the look that opens a seed.
        self._lanes = after.lanes.note(ended=idle, opening=look.clone())
        if not self.late:
            self.settle()
        return True

    def settle(self) -> bool:
        """Note in the units what the last step brought: failures, members, seeds that ended. False: that is done."""
        noted, self._noted = self._noted, None
        if noted is None:
            return False
        stored, joins, ended, self._idle = noted.rows()
        device = noted.lanes.x.device
        if len(stored):
            record(self.open, noted.made, moved_one(stored, device), noted.broken, self.stages.score)
        if len(joins):
            join(self.open, noted.made, moved_one(joins, device), self.stages.score)
        if len(ended):
            self._end(noted.lanes, moved_one(ended, device))
        return True

    def _with_memory(self, lanes: Cases, made: Cases) -> Cases:
        """The lanes with what the mutator keeps in them; of one from a user's file it is known from now on."""
        kept = {name: made.info[name] for name in lane_columns(made)}
        if kept and self._own_forms is not None:
            self._own_forms |= {name: column[:0] for name, column in kept.items()}
        return lanes.note(**kept)

    def _gains(self, made: Cases, good: Tensor, failing: Tensor, broken: Tensor) -> Tensor:
        """What each case adds to the coverage; seeds count too, unless only failures do."""
        if self.stages.counted == "failures":
            return self.guidance.gains(self.bench, made, failing & ~broken)
        seeds = at_seed(made) & ~made.info["ended"]
        return self.guidance.gains(self.bench, made, (good | seeds) & ~broken)

    def close(self, unit: Unit) -> None:
        """Forget a unit that was committed, with whatever lanes it still has."""
        if not bool(unit.ended.all()):
            self.settle()  # the step under way may still bring something to it
        self.open.remove(unit)
        if self._lanes is not None and not bool(unit.ended.all()):
            gone = self._lanes.info["ended"] | (self._lanes.info["unit"] == unit.number)
            self._lanes, self._idle = self._lanes.note(ended=gone), None

    @property
    def now(self) -> Cases | None:
        """The lanes as they stand, for those who count; None where there are none."""
        return self._lanes

    def cut_short(self) -> None:
        """End every seed under way where it stands."""
        self.settle()
        if self._lanes is not None:
            going = ~self._lanes.info["ended"]
            if bool(going.any()):
                self._end(self._lanes, going.nonzero().squeeze(1))
            self._lanes, self._idle = self._lanes.note(ended=torch.ones_like(going)), None

    def at(self, seeds: Cases) -> Cases:
        """Lanes that stand at these seeds, nothing looked at yet."""
        seeds = seeds.to(self.bench.target.device)
        zero = torch.zeros_like(seeds.origin)
        climbs = bool(self.look.objective)
        covers = self.guidance.coverage is not None and not isinstance(self.schedule, Pooled)
        columns = {
            "seed_x": seeds.parent,
            "step": zero,
            "opening": torch.full_like(zero, climbs or covers, dtype=torch.bool),
            "ended": torch.zeros_like(zero, dtype=torch.bool),
            "fired": zero[:, None].expand(-1, rules_of(self.stages)).clone(),
        }
        if "seed_x" in seeds.info and not isinstance(self.schedule, Pooled):
            columns["start_x"] = seeds.x.clone()  # made from the seed: where the search begins
        if MINED in seeds.info:
            columns[MINED] = seeds.info[MINED]
        if climbs:
            columns["slope"] = torch.zeros_like(seeds.x)
            columns["seed_logits"] = seeds.x.new_zeros(len(seeds), len(self.bench.target.spec.classes))
        columns |= {f"best_{name}": seeds.x.new_full((len(seeds),), -torch.inf) for name in self.stages.score}
        if isinstance(self.schedule, Pooled):
            columns["depth"] = seeds.info.get("depth", zero)
            unknown = seeds.x.new_full((len(seeds),), torch.nan)
            columns |= {name: seeds.info.get(name, unknown) for name in map("parent_{}".format, self.stages.score)}
        columns |= self._forms(seeds)
        lanes = Cases(seeds.x.clone(), seeds.y, seeds.origin, columns)
        chooser = self.guidance.chooser
        if chooser is not None:
            lanes = chooser.start(lanes)
            wide = zero[:, None].expand(-1, chooser.k)
            lanes = lanes.note(**dict(zip(PUSHED, (wide.clone(), wide.to(seeds.x.dtype)), strict=True)))
        return self.schedule.start(lanes)

    def _forms(self, seeds: Cases) -> dict[str, Tensor]:
        """What the mutator hands down: from the parent, else as at the root; what it keeps in a lane: nothing yet."""
        if self._own_forms is None:
            self._own_forms = {}
            if not self.stages.mutate.from_file:
                none = Cases(seeds.x[:0], seeds.y[:0], seeds.origin[:0], {"seed_x": seeds.x[:0], "slope": seeds.x[:0]})
                made = self.stages.mutate(self.bench, none, rng=Rows(none.origin))
                self._own_forms = {n: made.info[n] for n in own_columns(made)} if isinstance(made, Cases) else {}
        return {
            name: form.new_zeros(len(seeds), *form.shape[1:])
            if name.startswith("lane_")
            else seeds.info.get(name, blank_line(seeds.x, tuple(form.shape[1:]), form.dtype))
            for name, form in self._own_forms.items()
        }

    def _made(self, lanes: Cases) -> Cases:
        """The next case of every lane, looked at."""
        info = lanes.info
        rng = self.rng.rows(torch.stack([info["draw"], info["cycle"], info["step"]], 1))
        mutate = self.stages.mutate
        made = mutate(self.bench, lanes, rng=rng)
        handed = (
            {name: made.info[name] for name in (*own_columns(made), *_operator(made))}
            if isinstance(made, Cases)
            else {}
        )
        x = check_made(made.x if isinstance(made, Cases) else made, lanes.x, f"mutator {mutate.entry.name!r}")
        x = torch.where(column(info["opening"], x), lanes.x, x)  # a look at the case itself
        return self.look(self.bench, lanes.with_x(x).note(before_x=lanes.x, key=rng.key, **handed))

    def _fired(self, made: Cases, good: Tensor, failing: Tensor) -> Tensor:
        """What ``rules_of`` counts, of each case, (N, rules)."""
        rules = (*self.stages.keep.values(), *self.stages.opinions.values())
        fired = torch.stack([*(rule(self.bench, made) & good for rule in rules), good], 1)
        if not self._operators:
            return fired
        tried = ~made.info["opening"] & ~made.info["ended"]
        return torch.cat([fired[:, :-1], brought(made, self._operators, tried, failing), fired[:, -1:]], 1)

    def _memory(self, lanes: Cases, made: Cases, kept: Tensor) -> dict[str, Tensor]:
        """What a lane remembers of its seed: the target's answer to it, and the best of each score that was kept."""
        memory: dict[str, Tensor] = {}
        if "seed_logits" in lanes.info:
            first = at_seed(lanes)[:, None]
            memory["seed_logits"] = torch.where(first, made.info["logits"], lanes.info["seed_logits"])
        memory |= {name: made.info[name] for name in PUSHED if name in made.info}
        for name in self.stages.score:
            best = lanes.info[f"best_{name}"]
            # The larger of two numbers: a score of an answer that is none is NaN, and no best.
            memory[f"best_{name}"] = torch.where(kept, torch.fmax(best, made.info[name]), best)
        return memory

    def _refilled(self) -> Cases | None:
        """The lanes with fresh seeds in the places of those that ended."""
        lanes, ended = self._lanes, self._idle
        if lanes is not None and ended is None:
            ended = lanes.info["ended"].nonzero().squeeze(1).cpu()
        fresh = self._fresh(self.width - (0 if lanes is None or ended is None else len(lanes) - len(ended)))
        if lanes is None or ended is None:
            self._lanes = fresh
        elif fresh is not None and len(fresh) == len(ended):
            lanes.put(moved_one(ended, lanes.x.device), fresh)  # nothing is copied but the new rows
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
        seeds = self.seeds[unit.rows[slots]] if unit.parents is None else unit.parents[slots]
        lanes = self.at(seeds)
        zero = torch.zeros_like(lanes.origin)
        row = seeds.info.get("row", unit.rows[slots]).to(zero.device)
        slots = slots.to(zero.device)
        lanes = lanes.note(unit=zero + unit.number, cycle=zero + unit.cycle, slot=slots, row=row)
        lanes = lanes.note(taken=seeds.info.get("taken", zero + unit.cycle).to(zero.device))
        if "tried" in seeds.info:
            lanes = lanes.note(tried=seeds.info["tried"].to(zero.device))
        # A parent may be taken twice in a unit; its children must differ.
        return lanes.note(draw=row if unit.parents is None else slots)

    def _end(self, lanes: Cases, ended: Tensor) -> None:
        if self.guidance.chooser is not None:
            self.guidance.chooser.end(lanes[ended])
        number, slot, tries, fired = moved(
            [lanes.info[name][ended] for name in ("unit", "slot", "step", "fired")], "cpu"
        )
        order, parts = apart(self.open, number)
        slot, tries, fired = slot[order], tries[order], fired[order]
        for unit, mine in parts:
            unit.ended[slot[mine]] = True
            unit.tries[slot[mine]] = tries[mine]
            unit.fired[slot[mine]] = fired[mine]
            unit.tried += int(tries[mine].sum())
            unit.valid += int(fired[mine, -1].sum())


def _operator(made: Cases) -> tuple[str, ...]:
    return (COLUMN,) if COLUMN in made.info else ()
