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
from assay.engines.guidance import Guidance
from assay.engines.parents import blank_line, lane_columns, line_columns
from assay.engines.unit import Unit
from assay.recipes.recipe import Stages
from assay.stages.objective import Look, at_seed
from assay.stages.schedules import Pooled, Schedule
from assay.stages.strategies import PUSHED
from assay.subjects.bench import Bench

WRONG, NONFINITE = 0, 1  # kinds of failure
# The share of lanes that may stand idle when no seed is left for them. Each size of batch that a GPU has not met costs
# it more than many idle lanes do; on a CPU an idle lane costs a pass.
IDLE = {"cuda": 0.5}


def rules_of(stages: Stages) -> int:
    """How many rules are counted: those of keeping, then the opinions."""
    return len(stages.keep) + len(stages.opinions)


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
        self.open: list[Unit] = []
        self._units = units
        self._lanes: Cases | None = None
        self._own_forms: dict[str, Tensor] | None = None

    def step(self) -> bool:
        """One mutation of every lane; False when there is nothing left to do."""
        lanes = self._refilled()
        if lanes is None:
            return False
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
        fired = self._fired(made, good)
        kept = fired[:, : len(self.stages.keep)].any(1) if self.stages.keep else good
        if self.guidance.chooser is not None:
            lanes = self.guidance.chooser.learn(lanes, self.bench.seen(made), failing, good)
        lanes = lanes.note(step=info["step"] + ~opening, fired=info["fired"] + fired, **self._memory(lanes, made, kept))
        after = self.schedule.next(lanes, made, kept | opening, failing)
        now = made.note(step=lanes.info["step"])
        self._record(now, after.stored, broken)
        if isinstance(self.schedule, Pooled):
            self._join(now, self.schedule.joins(kept, failing, info["depth"]))
        self._end(after.lanes, after.ended & ~info["ended"])
        look = after.lanes.info.get("look", torch.zeros_like(opening))
        # A copy: rows are refilled in place, and one memory for both columns would lose the look that opens a seed.
        self._lanes = after.lanes.note(ended=after.ended | info["ended"], opening=look.clone())
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
        """What the mutator hands down along a line of cases: from the parent, else as it is at the root; and what it
        keeps in a lane, nothing yet.
        """
        if self._own_forms is None:
            self._own_forms = {}
            if not self.stages.mutate.from_file:
                none = Cases(seeds.x[:0], seeds.y[:0], seeds.origin[:0], {"seed_x": seeds.x[:0], "slope": seeds.x[:0]})
                made = self.stages.mutate(self.bench, none, rng=Rows(none.origin))
                self._own_forms = {n: made.info[n] for n in _own_columns(made)} if isinstance(made, Cases) else {}
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
        handed = {name: made.info[name] for name in _own_columns(made)} if isinstance(made, Cases) else {}
        x = check_made(made.x if isinstance(made, Cases) else made, lanes.x, f"mutator {mutate.entry.name!r}")
        x = torch.where(column(info["opening"], x), lanes.x, x)  # a look at the case itself
        return self.look(self.bench, lanes.with_x(x).note(before_x=lanes.x, key=rng.key, **handed))

    def _fired(self, made: Cases, good: Tensor) -> Tensor:
        """Which rule keeps which case, and which opinion fires on it, (N, rules)."""
        rules = (*self.stages.keep.values(), *self.stages.opinions.values())
        verdicts = [rule(self.bench, made) & good for rule in rules]
        return torch.stack(verdicts, 1) if verdicts else good.new_zeros(len(good), 0)

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

    def _record(self, made: Cases, stored: Tensor, broken: Tensor) -> None:
        if not bool(stored.any()):
            return
        kind, pred = torch.where(broken, NONFINITE, WRONG), made.info["logits"].argmax(1)
        names = ("unit", "slot", "row", "cycle", "step", *self.stages.score, *line_columns(made))
        columns = {name: made.info[name] for name in names} | {"kind": kind, "pred": pred}
        if MINED in made.info:
            columns[MINED] = made.info[MINED]
        if "others" in made.info and made.info["others"].shape[1]:
            columns["others_pred"] = made.info["others"].argmax(2)
        found = Cases(made.x, made.y, made.origin, columns)[stored].to("cpu")
        for unit, mine in self._apart(found.info["unit"]):
            unit.found.append(found[mine].drop("unit"))
            unit.waiting += int(mine.sum())

    def _join(self, made: Cases, kept: Tensor) -> None:
        """Note what is to join the pool when its unit is committed."""
        if not bool(kept.any()):
            return
        names = ("unit", "slot", "row", "step", *self.stages.score, *line_columns(made))
        columns = {name: made.info[name] for name in names} | {"depth": made.info["depth"] + 1}
        members = Cases(made.x, made.y, made.origin, columns)[kept].to("cpu")
        for unit, mine in self._apart(members.info["unit"]):
            unit.joining.append(members[mine].drop("unit"))

    def _end(self, lanes: Cases, ended: Tensor) -> None:
        if not bool(ended.any()):
            return
        if self.guidance.chooser is not None:
            self.guidance.chooser.end(lanes[ended])
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


def _own_columns(made: Cases) -> list[str]:
    """What belongs to the mutator alone."""
    return [*line_columns(made), *lane_columns(made)]


def _put(lanes: Cases, rows: Tensor, fresh: Cases) -> None:
    """Write rows of lanes over, in place."""
    if not len(rows):
        return
    pairs = ((lanes.x, fresh.x), (lanes.y, fresh.y), (lanes.origin, fresh.origin))
    for old, new in (*pairs, *((lanes.info[name], new) for name, new in fresh.info.items())):
        old[rows] = new
