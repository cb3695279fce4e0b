"""Shrinking: passes that take failing cases back towards their seeds for as long as they fail."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from assay.core import ddmin
from assay.core.errors import UsageError
from assay.core.specs import did_you_mean, steps, written

Ask = Callable[[Tensor, Tensor], Tensor]  # (rows, inputs) -> (M,) bool: does each row, with that input, still fail?

BYTES = {"cpu": 1 << 26, "cuda": 1 << 30}  # of the inputs asked about together


class Outcome(NamedTuple):
    """What a pass made of inputs, (N, *shape), and how that came about, (N,) each; see ``ddmin.Reduced``."""

    x: Tensor
    failing: Tensor
    minimal: Tensor
    asked: Tensor


@dataclass(frozen=True, slots=True)
class Pass:
    """One way of making a change smaller: ``work(x, seeds, ask, budget)``, as it is written in ``text``."""

    text: str
    work: Callable[[Tensor, Tensor, Ask, Tensor | None], Outcome]


def passes_of(by: str, shape: tuple[int, ...]) -> tuple[Pass, ...]:
    """The passes of a comma list, for inputs of that shape; ``auto`` is what suits them.

    >>> [each.text for each in passes_of("auto", (1, 28, 28))], [each.text for each in passes_of("auto", (7,))]
    (['blocks(side=4)', 'pixels'], ['entries'])
    """
    chosen = steps(("blocks,pixels" if len(shape) == 3 else "entries") if by == "auto" else by)
    if not chosen:
        raise UsageError("name at least one pass: --by pixels")
    return tuple(_pass(name, params, shape) for name, params in chosen)


def _pass(name: str, params: dict[str, object], shape: tuple[int, ...]) -> Pass:
    if name not in ATOMS:
        raise UsageError(f"unknown pass {name!r}; {did_you_mean(name, ATOMS)}")
    allowed = {p.name: p.default for p in inspect.signature(ATOMS[name]).parameters.values() if p.name != "shape"}
    for key in params:
        if key not in allowed:
            raise UsageError(f"pass {name!r} has no parameter {key!r}; {did_you_mean(key, allowed)}")
    if name != "entries" and len(shape) != 3:
        raise UsageError(f"{name} are parts of images, and inputs of shape {shape} are none; take --by entries")
    told = allowed | params
    place = ATOMS[name](shape, **told)
    inside = ", ".join(f"{key}={written(value)}" for key, value in told.items())
    return Pass(f"{name}({inside})" if inside else name, by_atoms(place))


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


def by_atoms(place: Tensor) -> Callable[[Tensor, Tensor, Ask, Tensor | None], Outcome]:
    """Delta debugging over the atoms that differ: an atom that goes is the seed's again, bit for bit."""

    def work(x: Tensor, seeds: Tensor, ask: Ask, budget: Tensor | None) -> Outcome:
        where = place.to(x.device)

        def mixed(rows: Tensor, masks: Tensor) -> Tensor:
            return torch.where(masks[:, where].view(-1, *x.shape[1:]), x[rows], seeds[rows])

        each = max(x[:1].nbytes, 1)
        limit = max(64, min(ddmin.LIMIT, BYTES.get(x.device.type, BYTES["cpu"]) // each))
        found = ddmin.ddmin(
            changed(x, seeds, where), lambda rows, masks: ask(rows, mixed(rows, masks)), budget=budget, limit=limit
        )
        every = torch.arange(len(x), device=x.device)
        return Outcome(mixed(every, found.kept), found.failing, found.minimal, found.asked)

    return work


def shrunk(x: Tensor, seeds: Tensor, ask: Ask, passes: tuple[Pass, ...], budget: int | None = None) -> Outcome:
    """The inputs after all passes, each going on from what the one before it left.

    Where a pass is cut short by the ``budget`` of questions, which counts over all passes, the input is what it had
    reached. ``minimal`` is by the last pass.
    """
    left = None if budget is None else torch.full((len(x),), budget, dtype=torch.int64, device=x.device)
    none = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    done = Outcome(x, none, none, none.long())
    for number, each in enumerate(passes):
        made = each.work(done.x, seeds, ask, left)
        # A pass without a question left cannot know who fails; the first one has asked.
        failing = done.failing if number else made.failing
        done = Outcome(made.x, failing, made.minimal, done.asked + made.asked)
        left = None if left is None else left - made.asked
    return done
