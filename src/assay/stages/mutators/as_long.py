"""Steps as long as those of another mutator: the controls that tell its direction from its size."""

import torch
from torch import Tensor

from assay.core import norms
from assay.core.cases import Cases, check_made
from assay.core.randomness import Rows
from assay.core.registry import bind
from assay.core.specs import step
from assay.subjects.bench import Bench
from assay.subjects.target import START, require


def lengths(bench: Bench, cases: Cases, of: str, rng: Rows) -> Tensor:
    """How far the mutator of that text moves each case, in l2, (N,)."""
    name, params = step(of)
    make = bind("mutator", name, params)
    require(bench.target, set(make.entry.needs) - {START}, f"mutator {make.entry.name!r}")
    made = make(bench, cases, rng=rng)
    x = check_made(made.x if isinstance(made, Cases) else made, cases.x, f"mutator {make.entry.name!r}")
    return norms.size(x - cases.x, "l2")


def moved(x: Tensor, direction: Tensor, length: Tensor, bounds: tuple[float, float]) -> Tensor:
    """Each row moved along its direction and clipped to the bounds, as long in l2 as asked after clipping.

    A row without a direction stays; one that cannot go so far ends at the bounds. The factor is found exactly: entries
    stop one after the other where they reach their end of the range, and between two such stops the square of the
    length is a sum of those that have stopped and the factor squared times that of the others.
    """
    low, high = bounds
    way = direction.flatten(1).double()
    room = torch.where(direction > 0, high - x, x - low).flatten(1).double().clamp_min(0)
    stops = torch.where(way != 0, room / way.abs().clamp_min(1e-300), torch.inf)
    stops, order = stops.sort(1)
    stopped = room.gather(1, order).square().where(stops.isfinite(), 0.0).cumsum(1)
    going = way.gather(1, order).square()
    going = going.sum(1, keepdim=True) - going.cumsum(1)
    # Before the first stop nothing has stopped; behind each stop, one entry more.
    stopped = torch.cat((torch.zeros_like(stopped[:, :1]), stopped), 1)
    going = torch.cat((way.square().sum(1, keepdim=True), going), 1).clamp_min(0)
    square = length.double().square()[:, None]
    reached = stopped[:, 1:] + torch.where(going[:, 1:] > 0, stops.square() * going[:, 1:], 0.0)
    last = (reached <= square).sum(1, keepdim=True)
    rest = (square - stopped.gather(1, last)).clamp_min(0)
    factor = (rest / going.gather(1, last).clamp_min(1e-300)).sqrt()
    step_ = torch.minimum(factor * way.abs(), room) * way.sign()
    return (x + step_.view_as(x).to(x.dtype)).clamp_(low, high)
