"""A unit: a block of seeds that is committed together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from assay.core.cases import MINED, Cases
from assay.engines.parents import line_columns

WRONG, NONFINITE = 0, 1  # kinds of failure


@dataclass(slots=True)
class Unit:
    """A block of seeds: which are left to do, and what came of those that ended."""

    number: int
    cycle: int
    rows: Tensor  # positions in the seed list, ascending; with a pool the parents' numbers in the order taken
    rules: int = 0  # that are counted: see rules_of
    parents: Cases | None = None  # with a pool: what is worked
    ended: Tensor = field(init=False)
    tries: Tensor = field(init=False)
    fired: Tensor = field(init=False)
    found: list[Cases] = field(default_factory=list)
    joining: list[Cases] = field(default_factory=list)  # with a pool: what may join it
    tried: int = 0  # cases of its seeds that ended
    valid: int = 0  # of them
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
        return self._of(self.found, slots)

    def members(self, slots: Tensor) -> Cases | None:
        """What joins the pool from those slots, in the same order."""
        return self._of(self.joining, slots)

    def _of(self, parts: list[Cases], slots: Tensor) -> Cases | None:
        if not parts:
            return None
        every = Cases.cat(parts)
        keep = torch.zeros(len(self.rows), dtype=torch.bool)
        keep[slots] = True
        every = every[keep[every.info["slot"]]]
        order = (every.info["slot"] * (int(self.tries.max()) + 1) + every.info["step"]).argsort(stable=True)
        return every[order]


def apart(units: Sequence[Unit], numbers: Tensor) -> tuple[Tensor, list[tuple[Unit, slice]]]:
    """An order in which the rows of one unit stand together, and the rows of each then."""
    together, order = numbers.sort(stable=True)
    which, counts = together.unique_consecutive(return_counts=True)
    by_number = {unit.number: unit for unit in units}
    ends = counts.cumsum(0).tolist()
    rows = [slice(end - count, end) for end, count in zip(ends, counts.tolist(), strict=True)]
    return order, [(by_number[number], part) for number, part in zip(which.tolist(), rows, strict=True)]


def record(units: Sequence[Unit], made: Cases, stored: Tensor, broken: Tensor, scores: Iterable[str]) -> None:
    """Note the failures, of the rows ``stored``, that are to be stored when their units are committed."""
    kind, pred = torch.where(broken, NONFINITE, WRONG), made.info["logits"].argmax(1)
    names = ("unit", "slot", "row", "cycle", "step", *scores, *line_columns(made))
    columns = {name: made.info[name] for name in names} | {"kind": kind, "pred": pred}
    if MINED in made.info:
        columns[MINED] = made.info[MINED]
    if "others" in made.info and made.info["others"].shape[1]:
        columns["others_pred"] = made.info["others"].argmax(2)
    found = Cases(made.x, made.y, made.origin, columns)[stored].to("cpu")
    order, parts = apart(units, found.info["unit"])
    found = found.drop("unit")[order]
    for unit, mine in parts:
        unit.found.append(found[mine])
        unit.waiting += mine.stop - mine.start


def join(units: Sequence[Unit], made: Cases, kept: Tensor, scores: Iterable[str]) -> None:
    """Note what is to join the pool, the rows ``kept``, when its unit is committed."""
    names = ("unit", "slot", "row", "step", *scores, *line_columns(made))
    columns = {name: made.info[name] for name in names} | {"depth": made.info["depth"] + 1}
    members = Cases(made.x, made.y, made.origin, columns)[kept].to("cpu")
    order, parts = apart(units, members.info["unit"])
    members = members.drop("unit")[order]
    for unit, mine in parts:
        unit.joining.append(members[mine])
