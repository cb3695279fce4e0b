"""Who stands where in an arena: means over seeds, and which differences are more than chance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch

from assay.core.stats import holm, mcnemar, paired_shares
from assay.engines.arena_columns import UNSEEN, WHITE, interval, packed, unpacked
from assay.engines.arena_row import NONE

SURE = 0.05  # how often at most, over all pairs of rows of a column together, two that are alike are told apart
OTHERS = ("linf", "l2", "l1", "spatial")  # attacks of another kind than the ball that rows are hardened in
SORTED_BY = ("autoattack", "pgd")  # the first of these that is there; else the first column


@dataclass(frozen=True, slots=True)
class Cell:
    """A row's number in a column: mean, least and largest over its seeds, and 95 % interval where there is one seed.

    ``best`` are the row with the largest mean and those not told apart from it; ``p`` is of the difference to that row,
    made up for all pairs of the column. Numbers that a trust check spoils are ``unreliable`` and are not compared.
    """

    mean: float
    low: float
    high: float
    seeds: int
    ci95: tuple[float, float] | None
    unreliable: tuple[str, ...] = ()
    best: bool = False
    p: float | None = None

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {name: round(getattr(self, name), 6) for name in ("mean", "low", "high")}
        told |= {"seeds": self.seeds, "best": self.best}
        told |= {} if self.ci95 is None else {"ci95": list(self.ci95)}
        told |= {} if self.p is None else {"p": float(f"{self.p:.4g}")}
        return told | ({"unreliable": list(self.unreliable)} if self.unreliable else {})


@dataclass(frozen=True, slots=True)
class Standing:
    """The table of an arena: ``cells[row][column]``, and what each row took on average (``spent[row][name]``)."""

    columns: tuple[str, ...]
    kinds: Mapping[str, str]
    cells: Mapping[str, Mapping[str, Cell]]
    spent: Mapping[str, Mapping[str, float | None]]
    seeds: Mapping[str, int]

    @staticmethod
    def of(protocol: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> "Standing":
        """From the records of rows and seeds, all of one protocol."""
        rows: dict[str, list[Mapping[str, Any]]] = {}
        for record in records:
            rows.setdefault(str(record["row"]), []).append(record)
        columns, others = tuple(protocol["columns"]), unseen_in(protocol)
        found = {name: _column({row: [r["columns"][name] for r in some] for row, some in rows.items()})
                 for name in columns}  # fmt: skip
        kinds = {name: str(protocol["columns"][name]["kind"]) for name in columns}
        if others:
            told = {
                row: [_together([r["columns"][name] for name in others]) for r in some] for row, some in rows.items()
            }
            last = columns.index(others[-1]) + 1
            columns, kinds = (*columns[:last], UNSEEN, *columns[last:]), kinds | {UNSEEN: WHITE}
            found[UNSEEN] = _column(told)
        by = next((name for name in (*SORTED_BY, *columns) if name in found), "")
        order = sorted(rows, key=lambda row: (row != NONE, -found[by][row].mean, row) if by else (True, 0.0, row))
        return Standing(
            columns,
            kinds,
            {row: {name: found[name][row] for name in columns} for row in order},
            {row: _spent(rows[row]) for row in order},
            {row: len(rows[row]) for row in order},
        )

    def stands_out(self, row: str, column: str) -> bool:
        """Whether a row is among the best of a column in which not all are."""
        return self.cells[row][column].best and not all(cells[column].best for cells in self.cells.values())

    def to_json(self) -> dict[str, Any]:
        return {
            row: {
                "seeds": self.seeds[row],
                **{name: None if v is None else round(v, 2) for name, v in self.spent[row].items()},
                "columns": {name: cell.to_json() for name, cell in cells.items()},
            }
            for row, cells in self.cells.items()
        }


def unseen_in(protocol: Mapping[str, Any]) -> list[str]:
    """The columns of other norms than the arena's and of turned images, over all inputs; none where there is one."""
    columns: Mapping[str, Mapping[str, Any]] = protocol["columns"]
    others = [name for name in OTHERS if name != protocol.get("norm", "linf")]
    found = [name for name in columns if name.split("(")[0] in others and not columns[name].get("cases")]
    return found if len(found) > 1 and UNSEEN not in columns else []


def _together(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several columns of the same inputs as one that counts how many of them each input withstands."""
    shares = torch.tensor([unpacked(one) for one in parts], dtype=torch.float64)
    every = torch.tensor([float(one["of"]) for one in parts], dtype=torch.float64)
    right, of = (shares * every[:, None]).sum(0).round().long(), int(every.sum())
    spoiled = sorted({name for one in parts for name in one.get("unreliable", ())})
    told: dict[str, Any] = {"right": int(right.sum()), "n": len(right), "of": of, "rows": packed(right, of)}
    told["ci95"] = list(interval(right / of))
    return told | ({"unreliable": spoiled} if spoiled else {})


def _column(told: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Cell]:
    """One column of all rows: ``told[row]`` has what was measured with each seed."""
    cells = {row: _cell(some) for row, some in told.items()}
    sound = [row for row, cell in cells.items() if not cell.unreliable]
    if not sound:
        return cells
    tests = compared({row: told[row] for row in sound})
    first = max(sound, key=lambda row: cells[row].mean)
    for row in sound:
        p = 1.0 if row == first else tests[frozenset((row, first))]
        behind = row != first and p < SURE and not _overlap(cells[row], cells[first])
        cells[row] = _judged(cells[row], best=not behind, p=None if row == first else p)
    return cells


def _cell(some: Sequence[Mapping[str, Any]]) -> Cell:
    shares = [one["right"] / (one["n"] * one["of"]) for one in some]
    spoiled = tuple(sorted({name for one in some for name in one.get("unreliable", ())}))
    interval = (some[0]["ci95"][0], some[0]["ci95"][1]) if len(some) == 1 else None
    return Cell(sum(shares) / len(shares), min(shares), max(shares), len(shares), interval, spoiled)


def _judged(cell: Cell, *, best: bool, p: float | None) -> Cell:
    return Cell(cell.mean, cell.low, cell.high, cell.seeds, cell.ci95, cell.unreliable, best, p)


def _overlap(worse: Cell, better: Cell) -> bool:
    """Whether a seed of the one does as well as a seed of the other: then another seed might turn them round."""
    return worse.high >= better.low


def compared(told: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[frozenset[str], float]:
    """The p of every pair of rows, input by input over the same inputs, made up by Holm for how many pairs there are.

    Where both have one seed and one answer an input, McNemar's exact; else of each input's share over the seeds.
    """
    shares = {row: _mean_shares(some) for row, some in told.items()}
    found = {}
    for one, other in combinations(told, 2):
        differences = [a - b for a, b in zip(shares[one], shares[other], strict=True)]
        found[frozenset((one, other))] = _p(differences)
    return holm(found)


def _mean_shares(some: Sequence[Mapping[str, Any]]) -> list[float]:
    """The share of right answers to each input, over seeds."""
    every = [unpacked(one) for one in some]
    return [sum(of_seeds) / len(every) for of_seeds in zip(*every, strict=True)]


def _p(differences: Sequence[float]) -> float:
    if all(difference in (-1.0, 0.0, 1.0) for difference in differences):
        return mcnemar(differences.count(1.0), differences.count(-1.0))
    return paired_shares(differences)


def _spent(records: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Means over seeds of what a row took and found; None where it looks for nothing, or nobody knows."""
    made = [record["made"] for record in records]
    found = [one.get("found") for one in made]
    told: dict[str, float | None] = {"seconds": _mean([one.get("seconds") for one in made])}
    told["passes"] = _mean([one.get("passes") for one in made])
    for name, key in (("cases", "cases"), ("found", "failures"), ("distinct", "distinct")):
        told[name] = _mean([None if one is None else one[key] for one in found])
    return told


def _mean(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) / len(known) if len(known) == len(numbers) and known else None
