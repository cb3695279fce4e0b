"""What a run keeps of its shrinkings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.journal import Line
from assay.core.shards import decode
from assay.core.specs import step
from assay.core.store import Store
from assay.engines.found import load_failures
from assay.engines.shrunk import OF_THE_INPUT
from assay.engines.stored import class_names, identity_of

BEYOND_K = "beyond_k"  # why a failure is left out: there were enough before it
SIZES = tuple(f"{size}{when}" for size in ("changed", "l0", "l2", "linf") for when in ("_before", ""))


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The failures of a run made smaller, ``by`` these passes; those that fail no longer are not among the ``cases``.

    ``of`` counts all that were looked at, of ``wanted`` that there are to look at, ``failing`` those that fail on the
    model that was asked. ``files`` hold the whole in the run; ``seconds`` are those of this call, None where it found
    everything there. Columns of the cases: see ``assay.engines.shrunk``, and ``row``, the place among the run's own.
    ``queries`` counts what a model that only answers was asked over all of the run; where its budget ended first,
    ``complete`` is False. ``left_out`` counts failures of the run that were not looked at, by the reason.
    """

    run: Path
    number: int
    by: str
    cases: Cases
    of: int
    wanted: int
    seconds: float | None
    classes: tuple[str, ...]
    files: tuple[str, ...]
    queries: Mapping[str, Any] | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return self.of == self.wanted

    @property
    def new(self) -> bool:
        return self.seconds is not None

    @property
    def failing(self) -> int:
        return len(self.cases)

    @property
    def questions(self) -> int:
        return int(self.cases.info["questions"].sum())

    @property
    def eight_bit(self) -> int | None:
        """How many fail as an image of 8 bits is read; None where no pass was for that."""
        column = self.cases.info.get("eight_bit")
        return None if column is None else int(column.sum())

    def medians(self) -> dict[str, float | None]:
        """The median of each size before and after, and of the questions; None where no case fails."""
        names = (*SIZES, "questions")
        return {name: float(self.cases.info[name].double().quantile(0.5)) if len(self) else None for name in names}

    def __len__(self) -> int:
        return len(self.cases)

    def __repr__(self) -> str:
        return f"<{len(self)} of {self.of} cases of {self.run.name} shrunk by {self.by}>"


def shrinkings(run: Store) -> list[dict[str, Any]]:
    """What a run keeps of its shrinkings, from its journal."""
    told: dict[int, dict[str, Any]] = {}
    for line in run.commits("shrink"):
        number = int(line.meta["number"])
        one = told.setdefault(number, {"number": number, "by": line.meta["asked"]["by"], "cases": 0})
        one["cases"] += int(line.meta["cases"])
        one |= {"of": int(line.meta["of"])}
    return [one | {"complete": one["cases"] == one["of"]} for _, one in sorted(told.items())]


def load_shrunk(run: Store, number: int, every: Cases | None = None) -> Shrunk:
    """What a run keeps of a shrinking, by its number from 1, of ``every`` failure, where these are loaded already."""
    have = max((int(line.meta["number"]) for line in run.commits("shrink")), default=0)
    if not 1 <= number <= have:
        hint = f"its last one is {have}" if have else "make one with assay shrink"
        raise UsageError(f"run {run.name} has no shrinking {number}; {hint}")
    return kept(run, number, load_failures(run) if every is None else every)


def shrunk_of(run: Store, every: Cases, rows: Tensor) -> dict[int, Cases]:
    """What the run's shrinkings left of these failures, by their rows; the last that has one, where it still fails."""
    found: dict[int, Cases] = {}
    for told in shrinkings(run):
        cases = kept(run, told["number"], every).cases
        there = torch.isin(cases.info["row"], rows).nonzero().squeeze(1).tolist()
        found |= {int(cases.info["row"][place]): cases[slice(place, place + 1)] for place in there}
    return found


def kept(run: Store, number: int, every: Cases, seconds: float | None = None) -> Shrunk:
    """A shrinking, of ``every`` failure of the run; ``seconds`` where it was just made."""
    lines = lines_of(run, number)
    files = tuple(name for line in lines for name in line.files)
    parts = [decode(run.file(name)) for name in files]
    columns = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    x, rows = columns.pop("x"), columns["row"]
    cases = every[rows].drop(*OF_THE_INPUT, *scores_in(run)).with_x(x).note(**columns)
    return Shrunk(
        run.path,
        number,
        by=lines[0].meta["asked"]["by"],
        cases=cases[columns["failing"]],
        of=len(cases),
        wanted=int(lines[0].meta["of"]),
        seconds=seconds,
        classes=class_names(run, every),
        files=files,
    )


def scores_in(run: Store) -> set[str]:
    """The columns with scores, which were taken of the input as it was."""
    return {step(text)[0].rpartition(":")[2] for text in identity_of(run)["recipe"].get("score", ())}


def lines_of(run: Store, number: int) -> list[Line]:
    """The commits of a shrinking."""
    return [line for line in run.commits("shrink") if line.meta["number"] == number]
