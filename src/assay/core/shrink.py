"""Shrinking: passes that take failing cases back towards their seeds for as long as they fail."""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core import ddmin
from assay.core.amounts import AMOUNTS, check_steps
from assay.core.errors import UsageError
from assay.core.questions import Ask, Outcome, Task
from assay.core.specs import did_you_mean, steps, written

# What auto is. Fewest pixels are left where pixels come before the line: a case on the boundary has nothing to spare
# for them. And what lies on levels of 8 bits before stays there, where afterwards there is no room to round in.
IMAGES, OTHERS = "eight_bit,blocks,pixels,line,eight_bit", "entries,line"


@dataclass(frozen=True, slots=True)
class Pass:
    """One way of making a change smaller, as it is written in ``text``; ``atoms`` says that it takes parts back."""

    text: str
    work: Callable[[Task], Outcome]
    atoms: bool


def passes_of(by: str, shape: tuple[int, ...]) -> tuple[Pass, ...]:
    """The passes of a comma list, for inputs of that shape; ``auto`` is what suits them.

    >>> [each.text for each in passes_of("auto", (1, 28, 28))], [each.text for each in passes_of("auto", (7,))]
    (['eight_bit', 'blocks(side=4)', 'pixels', 'line(steps=10)', 'eight_bit'], ['entries', 'line(steps=10)'])
    """
    chosen = steps((IMAGES if len(shape) == 3 else OTHERS) if by == "auto" else by)
    if not chosen:
        raise UsageError("name at least one pass: --by pixels")
    if re.search(r"^\s*,|,\s*,|,\s*$", by):
        raise UsageError(f"a pass is missing beside a comma of --by {by!r}")
    return tuple(_pass(name, params, shape) for name, params in chosen)


def _pass(name: str, params: dict[str, object], shape: tuple[int, ...]) -> Pass:
    known = ATOMS | AMOUNTS
    if name not in known:
        raise UsageError(f"unknown pass {name!r}; {did_you_mean(name, known)}")
    given = ("shape", "task")
    allowed = {p.name: p.default for p in inspect.signature(known[name]).parameters.values() if p.name not in given}
    for key in params:
        if key not in allowed:
            raise UsageError(f"pass {name!r} has no parameter {key!r}; {did_you_mean(key, allowed)}")
    if name in ("pixels", "blocks", "channels") and len(shape) != 3:
        raise UsageError(f"{name} are parts of images, and inputs of shape {shape} are none; take --by entries")
    told = allowed | params
    if name == "line":
        check_steps(told["steps"])
    inside = ", ".join(f"{key}={written(value)}" for key, value in told.items())
    text = f"{name}({inside})" if inside else name
    if name in AMOUNTS:
        return Pass(text, lambda task: AMOUNTS[name](task, **told), atoms=False)
    return Pass(text, by_atoms(ATOMS[name](shape, **told)), atoms=True)


def entries(shape: tuple[int, ...]) -> Tensor:
    """Every number is an atom. As all below: the atom of each entry of the flattened input."""
    return torch.arange(torch.Size(shape).numel())


def pixels(shape: tuple[int, ...]) -> Tensor:
    """A place of an image is an atom, with all its channels."""
    depth, height, width = shape
    return torch.arange(height * width).repeat(depth)


def blocks(shape: tuple[int, ...], *, side: int = 4) -> Tensor:
    """A square tile is an atom, with all its channels; those at the right and lower edge may be smaller."""
    if not isinstance(side, int) or isinstance(side, bool) or side < 1:
        raise UsageError(f"the side of a block is a number of pixels from 1 up, got {side!r}")
    depth, height, width = shape
    across = -(-width // side)
    tiles = torch.arange(height)[:, None] // side * across + torch.arange(width) // side
    return tiles.flatten().repeat(depth)


def channels(shape: tuple[int, ...]) -> Tensor:
    """A channel is an atom, as a whole."""
    depth, height, width = shape
    return torch.arange(depth).repeat_interleave(height * width)


ATOMS: dict[str, Callable[..., Tensor]] = {
    "entries": entries,
    "pixels": pixels,
    "blocks": blocks,
    "channels": channels,
}


def changed(x: Tensor, seeds: Tensor, place: Tensor) -> Tensor:
    """Which atoms differ from the seeds', (N, A), where ``place`` says to which atom each entry belongs."""
    differs = (x != seeds).flatten(1).float()
    count = int(place.max()) + 1 if len(place) else 0
    return differs.new_zeros(len(x), count).index_add_(1, place.to(x.device), differs) > 0


def by_atoms(place: Tensor) -> Callable[[Task], Outcome]:
    """Delta debugging over the atoms that differ: an atom that goes is the seed's again, bit for bit."""

    def work(task: Task) -> Outcome:
        x, seeds = task.x, task.seeds
        where = place.to(x.device)

        def mixed(rows: Tensor, masks: Tensor) -> Tensor:
            return torch.where(masks[:, where].view(-1, *x.shape[1:]), x[rows], seeds[rows])

        found = ddmin.ddmin(
            changed(x, seeds, where),
            lambda rows, masks: task.ask(rows, mixed(rows, masks)),
            budget=task.budget,
            limit=min(ddmin.LIMIT, task.limit),
            singly=task.nearly,
        )
        every = torch.arange(len(x), device=x.device)
        return Outcome(mixed(every, found.kept), found.failing, found.minimal, found.asked)

    return work


def shrunk(
    x: Tensor,
    seeds: Tensor,
    ask: Ask,
    passes: tuple[Pass, ...],
    budget: int | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Outcome:
    """The inputs after all passes, each going on from what the one before it left.

    Where a pass is cut short by the ``budget`` of questions, which counts over all passes, the input is what it had
    reached. ``minimal`` is by the last pass that takes parts back. Passes behind it change what was shown: each part
    is asked about once more then, and where one can go after all, those passes are done again.
    """
    work = _Work(x, seeds, ask, budget, bounds)
    every = torch.arange(len(x), device=x.device)
    for number, each in enumerate(passes):
        work.do(each, every, first=number == 0)
    last = max((number for number, each in enumerate(passes) if each.atoms), default=len(passes))
    rows = work.unshown() if passes[last + 1 :] else every[:0]
    while len(rows):
        before = work.x[rows]
        work.do(passes[last], rows, nearly=True)
        rows = rows[(work.x[rows] != before).flatten(1).any(1)]
        for each in passes[last + 1 :] if len(rows) else ():
            work.do(each, rows)
        rows = rows[torch.isin(rows, work.unshown())]
    return Outcome(work.x, work.failing, work.minimal, work.asked)


class _Work:
    """Where every input stands."""

    def __init__(self, x: Tensor, seeds: Tensor, ask: Ask, budget: int | None, bounds: tuple[float, float]) -> None:
        self.came, self.seeds, self.ask, self.budget, self.bounds = x, seeds, ask, budget, bounds
        self.x = x.clone()
        self.failing = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        self.minimal, self.asked = self.failing.clone(), self.failing.long()

    def do(self, each: Pass, rows: Tensor, *, first: bool = False, nearly: bool = False) -> None:
        """One pass over these rows."""
        left = None if self.budget is None else self.budget - self.asked[rows]
        task = Task(
            self.x[rows],
            self.seeds[rows],
            self.came[rows],
            lambda some, x: self.ask(rows[some], x),
            left,
            self.bounds,
            nearly,
        )
        made = each.work(task)
        if first:  # a later one may have no question left to know who fails
            self.failing[rows] = made.failing
        same = (made.x == task.x).flatten(1).all(1)
        self.minimal[rows] = made.minimal if each.atoms else self.minimal[rows] & same
        self.x[rows] = made.x
        self.asked[rows] += made.asked

    def unshown(self) -> Tensor:
        """The rows that fail, are not shown to be minimal, and may ask."""
        open_ = self.failing & ~self.minimal
        return (open_ if self.budget is None else open_ & (self.asked < self.budget)).nonzero().squeeze(1)
