"""The pool of parents of a campaign: its seeds, and the cases that were worth going on from."""

from collections.abc import Callable
from copy import copy

import torch
from torch import Tensor

from assay.core.cases import MINED, Cases
from assay.core.randomness import Stream
from assay.core.shards import decode
from assay.core.store import Store
from assay.stages.schedules import Members, Pooled

POOL_BYTES = 1 << 30  # of the inputs that joined; the oldest go first


class Parents:
    """Members are numbered as they come: seeds first, then cases in the order in which they were committed."""

    def __init__(self, schedule: Pooled, seeds: Cases) -> None:
        self.schedule, self.seeds = schedule, seeds
        self.joined: Cases | None = None  # those that are still there
        self.gone = 0  # of those that joined
        self.taken = torch.zeros(len(seeds), dtype=torch.int64)
        self.gained = torch.zeros(len(seeds), dtype=torch.int64)
        self.entered = torch.zeros(len(seeds), dtype=torch.float64)
        self.cursor = 0
        self.works = 0  # parents taken, each time counted
        self.scores: dict[str, Tensor] = {}  # of the seeds

    @property
    def now(self) -> float:
        """Rounds over the seeds that have passed."""
        return self.works / len(self.seeds)

    def __len__(self) -> int:
        return len(self.taken)

    def copy(self) -> "Parents":
        """The pool as it stands now, whatever joins later."""
        other = copy(self)
        other.taken, other.gained = self.taken.clone(), self.gained.clone()  # which are counted in place
        return other

    def replay(self, run: Store, whose: Callable[[int], bool] = lambda _: True) -> None:
        """Go through the commits of a run, which say who was taken and who joined; those of some units only."""
        for line in run.commits("fuzz"):
            if not whose(int(line.meta["unit"])):
                continue
            self.take(torch.tensor(line.meta["rows"]))
            for name in line.files:
                if name.startswith("state/pool-"):
                    columns = decode(run.file(name))
                    x, y, origin = (columns.pop(key) for key in ("x", "y", "origin"))
                    self.join(Cases(x, y, origin, columns))

    def pick(self, n: int, rng: Stream) -> Tensor:
        """The numbers of the parents to work next."""
        members = Members(self.taken, self.gained, self.entered, self.now, self.cursor)
        places = self.schedule.pick(members, n, rng)
        return self._number(places)

    def take(self, numbers: Tensor) -> None:
        """Note that these were worked."""
        places = self._place(numbers)
        here = places[places >= 0]
        self.taken += torch.bincount(here, minlength=len(self.taken))
        self.works += len(numbers)
        if len(here):
            self.cursor = (int(here[-1]) + 1) % len(self.taken)

    def join(self, cases: Cases) -> None:
        """New members, with the columns ``parent`` (a number), ``row`` (their root seed), ``depth`` (steps from it),
        the recipe's scores and what a line hands down.
        """
        if "depth" not in cases.info:  # of a run that began before it was counted
            cases = cases.note(depth=torch.ones_like(cases.origin))
        parents = self._place(cases.info["parent"])
        self.gained += torch.bincount(parents[parents >= 0], minlength=len(self.gained))
        self.joined = cases if self.joined is None else Cases.cat([self.joined, cases])
        fresh = torch.zeros(len(cases), dtype=torch.int64)
        self.taken, self.gained = torch.cat([self.taken, fresh]), torch.cat([self.gained, fresh])
        self.entered = torch.cat([self.entered, torch.full((len(cases),), self.now, dtype=torch.float64)])
        over = len(self.joined) - self._room()
        if over > 0:
            self.joined = self.joined[over:]
            self.gone += over
            keep = torch.ones(len(self.taken), dtype=torch.bool)
            keep[len(self.seeds) : len(self.seeds) + over] = False
            self.taken, self.gained, self.entered = self.taken[keep], self.gained[keep], self.entered[keep]
            if self.cursor >= len(self.seeds):
                self.cursor = max(len(self.seeds), self.cursor - over) % len(self.taken)

    def cases(self, numbers: Tensor) -> Cases:
        """The members of those numbers, with ``row`` and ``seed_x`` of their roots and what lines handed down.

        ``taken`` is how often they were worked before, ``tried`` how many cases were made then, ``depth`` how many
        steps they are from their roots, and ``parent_SCORE`` their own scores.
        """
        places = self._place(numbers)
        old = places < len(self.seeds)
        row = torch.where(old, places, 0)
        x = self.seeds.x[row].clone()
        depth = torch.zeros_like(row)
        lines: dict[str, Tensor] = {f"parent_{name}": values[row].clone() for name, values in self.scores.items()}
        if self.joined is not None:
            mine = places[~old] - len(self.seeds)
            x[~old] = self.joined.x[mine]
            row[~old], depth[~old] = self.joined.info["row"][mine], self.joined.info["depth"][mine]
            for name in self.scores:
                lines[f"parent_{name}"][~old] = self.joined.info[name][mine]
            for name in line_columns(self.joined):
                column = self.joined.info[name]
                lines[name] = blank_line(x, tuple(column.shape[1:]), column.dtype)
                lines[name][~old] = column[mine]
        columns = {"row": row, "parent": numbers, "seed_x": self.seeds.parent[row], "depth": depth, **lines}
        columns["taken"] = self.taken[places]
        columns["tried"] = columns["taken"] * self.schedule.mutants
        if MINED in self.seeds.info:
            columns[MINED] = self.seeds.info[MINED][row]
        return Cases(x, self.seeds.y[row], self.seeds.origin[row], columns)

    def _room(self) -> int:
        assert self.joined is not None
        columns = (self.joined.x, *self.joined.info.values())
        each = sum(column[:1].nbytes for column in columns)
        return max(1, min(self.schedule.most, POOL_BYTES // each))

    def _number(self, places: Tensor) -> Tensor:
        return torch.where(places < len(self.seeds), places, places + self.gone)

    def _place(self, numbers: Tensor) -> Tensor:
        """Where members lie now, -1 for those that are gone."""
        joined = numbers >= len(self.seeds)
        place = torch.where(joined, numbers - self.gone, numbers)
        return torch.where(joined & (place < len(self.seeds)), -1, place)


def line_columns(cases: Cases) -> list[str]:
    """The columns that a mutator hands down along a line of cases."""
    return [name for name in cases.info if name.startswith("line_")]


def lane_columns(cases: Cases) -> list[str]:
    """The columns that a mutator keeps in a lane while it works one parent."""
    return [name for name in cases.info if name.startswith("lane_")]


def own_columns(cases: Cases) -> list[str]:
    """What belongs to the mutator alone."""
    return [*line_columns(cases), *lane_columns(cases)]


def blank_line(x: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Such a column at the root of a line: the input itself where it has that shape, else zeros."""
    if shape == tuple(x.shape[1:]):
        return x.clone()
    return torch.zeros(len(x), *shape, dtype=dtype, device=x.device)
