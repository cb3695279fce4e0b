"""A unit: a block of seeds that is committed together."""

from collections.abc import Iterable, Iterator, Sequence
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


def apart(units: Sequence[Unit], numbers: Tensor) -> Iterator[tuple[Unit, Tensor]]:
    """The units of these rows, each with the rows that are its own."""
    for number in numbers.unique().tolist():
        yield next(unit for unit in units if unit.number == number), numbers == number


def record(units: Sequence[Unit], made: Cases, stored: Tensor, broken: Tensor, scores: Iterable[str]) -> None:
    """Note the failures that are to be stored when their units are committed."""
    if not bool(stored.any()):
        return
    kind, pred = torch.where(broken, NONFINITE, WRONG), made.info["logits"].argmax(1)
    names = ("unit", "slot", "row", "cycle", "step", *scores, *line_columns(made))
    columns = {name: made.info[name] for name in names} | {"kind": kind, "pred": pred}
    if MINED in made.info:
        columns[MINED] = made.info[MINED]
    if "others" in made.info and made.info["others"].shape[1]:
        columns["others_pred"] = made.info["others"].argmax(2)
    found = Cases(made.x, made.y, made.origin, columns)[stored].to("cpu")
    for unit, mine in apart(units, found.info["unit"]):
        unit.found.append(found[mine].drop("unit"))
        unit.waiting += int(mine.sum())


def join(units: Sequence[Unit], made: Cases, kept: Tensor, scores: Iterable[str]) -> None:
    """Note what is to join the pool when its unit is committed."""
    if not bool(kept.any()):
        return
    names = ("unit", "slot", "row", "step", *scores, *line_columns(made))
    columns = {name: made.info[name] for name in names} | {"depth": made.info["depth"] + 1}
    members = Cases(made.x, made.y, made.origin, columns)[kept].to("cpu")
    for unit, mine in apart(units, members.info["unit"]):
        unit.joining.append(members[mine].drop("unit"))
