"""Passes of shrinking that change by how much an input differs from its seed, not where.

Whatever they are given, what they return fails when it is asked about, and no entry is further from its seed than it
was in the input as it came: a shrunk case lies in every ball around its seed that the case lay in.
"""

import torch
from torch import Tensor

from assay.core.errors import UsageError
from assay.core.questions import Outcome, Questions, Task

LEVELS = 255  # above 0, of 8 bits
CLOSE = 1e-3  # of a level: so near to one, a number is that level, rounded
BACK = 8  # bisections on the way back to the input as it came


def line(task: Task, *, steps: int = 10) -> Outcome:
    """The least of the change, all entries alike, that fails: bisection between the seed and the input."""
    check_steps(steps)
    about, x = Questions(task), task.x.clone()
    failing = about.fail(_rows(x), x)
    rows = failing.nonzero().squeeze(1)
    seed_fails = about.fail(rows, task.seeds[rows])
    x[rows[seed_fails]] = task.seeds[rows[seed_fails]]
    rows = rows[~seed_fails]
    low = torch.zeros(len(rows), device=x.device)
    high = torch.ones_like(low)
    for _ in range(steps):
        middle = (low + high) / 2
        tried = between(task.seeds[rows], task.x[rows], middle)
        fails = about.fail(rows, tried)
        x[rows[fails]] = tried[fails]
        low, high = torch.where(fails, low, middle), torch.where(fails, middle, high)
    return Outcome(x, failing, torch.zeros_like(failing), about.asked)


def check_steps(steps: object) -> None:
    """Refuse what is no number of bisections."""
    if not isinstance(steps, int) or isinstance(steps, bool) or not 1 <= steps <= 24:
        raise UsageError(f"the steps of a bisection are a number from 1 to 24, got {steps!r}")


def eight_bit(task: Task) -> Outcome:
    """Every changed entry on one of the 256 levels that an image of 8 bits has, where such a case fails.

    An entry that is the seed's stays the seed's. Where seeds lie between levels, what an image of the case holds is
    rounded there too: such a case must fail as it is and as the image is read. The nearest levels are tried first,
    then those away from the seed, then those of the change grown back towards the input as it came.
    """
    about, x = Questions(task), task.x.clone()
    failing = about.fail(_rows(x), x)
    rows = failing.nonzero().squeeze(1)
    for away in (False, True):
        tried = on_levels(task.x[rows], task, rows, away=away)
        fails = _fail_as_image(about, rows, tried)
        x[rows[fails]] = tried[fails]
        rows = rows[~fails]
    grown = torch.where(task.x == task.seeds, task.seeds, task.came)
    tried = on_levels(grown[rows], task, rows, away=True)
    fails = _fail_as_image(about, rows, tried)
    rows, tried = rows[fails], tried[fails]
    x[rows] = tried
    low = torch.zeros(len(rows), device=x.device)
    high = torch.ones_like(low)
    for _ in range(BACK):
        middle = (low + high) / 2
        tried = on_levels(between(task.x[rows], grown[rows], middle), task, rows, away=True)
        fails = _fail_as_image(about, rows, tried)
        x[rows[fails]] = tried[fails]
        low, high = torch.where(fails, low, middle), torch.where(fails, middle, high)
    return Outcome(x, failing, torch.zeros_like(failing), about.asked)


AMOUNTS = {"line": line, "eight_bit": eight_bit}


def between(start: Tensor, end: Tensor, share: Tensor) -> Tensor:
    """The inputs that are ``share`` of the way, (N,), never outside of the two by a rounding."""
    there = start + share.view(-1, *[1] * (start.dim() - 1)) * (end - start)
    return there.clamp(torch.minimum(start, end), torch.maximum(start, end))


def on_levels(x: Tensor, task: Task, rows: Tensor, *, away: bool) -> Tensor:
    """The inputs with each changed entry on a level between the seed's and what it came with, or the seed's own."""
    seeds, came = task.seeds[rows], task.came[rows]
    low, high = torch.minimum(seeds, came), torch.maximum(seeds, came)
    level = _level(x, task.bounds)
    outwards = torch.where(x > seeds, (level - CLOSE).ceil(), (level + CLOSE).floor())
    level = outwards if away else level.round()
    value = _value(level, task.bounds)
    value = _value(level - (value > high).to(level) + (value < low).to(level), task.bounds)
    return torch.where((x != seeds) & (value >= low) & (value <= high), value, seeds)


def as_image(x: Tensor, bounds: tuple[float, float]) -> Tensor:
    """The inputs as they are read again from images of 8 bits."""
    return _value(_level(x, bounds).round(), bounds)


def is_on_levels(x: Tensor, seeds: Tensor, bounds: tuple[float, float]) -> Tensor:
    """Whether all that differs from the seeds lies on levels of 8 bits, (N,)."""
    return ((x == seeds) | (x == as_image(x, bounds))).flatten(1).all(1)


def _fail_as_image(about: Questions, rows: Tensor, x: Tensor) -> Tensor:
    """Which rows fail with these inputs and, where they are others, with what images of them hold, (M,)."""
    fails = about.fail(rows, x)
    image = as_image(x, about.task.bounds)
    other = (fails & (image != x).flatten(1).any(1)).nonzero().squeeze(1)
    fails[other] = about.fail(rows[other], image[other])
    return fails


def _level(x: Tensor, bounds: tuple[float, float]) -> Tensor:
    low, high = bounds
    return (x - low) / (high - low) * LEVELS


def _value(level: Tensor, bounds: tuple[float, float]) -> Tensor:
    low, high = bounds
    share = level.clamp(0, LEVELS) / LEVELS  # as pictures are read
    return share if bounds == (0.0, 1.0) else low + share * (high - low)


def _rows(x: Tensor) -> Tensor:
    return torch.arange(len(x), device=x.device)
