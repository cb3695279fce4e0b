"""A queue for each seed: from every case worth it, go on."""

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core import norms
from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.registry import register
from assay.core.rows import put_where, some_rows, taken_where
from assay.stages.schedules import Next

ORDERS = ("last", "first")


@register("schedule", paper="RobOT 2021")
def queue(
    *,
    iters: int = 3,
    order: str = "last",
    depth: int = 2,
    steps: int = 300,
    pops: int = 50,
    cases: int = 10,
    apart: float = 0.05,
    only_kept: bool = True,
    reopen: bool = False,
) -> "Queue":
    """Take a case from the seed's queue, ``iters`` steps from it, queue what is kept; done when the queue is empty.

    ``order``: the ``last`` case queued or the ``first`` comes out. Of a full queue (``depth``) the oldest case is
    dropped, or where the first comes out, the newest. A seed also ends after ``steps`` steps, ``pops`` cases taken or
    ``cases`` failures stored. A failure is stored if it lies further than ``apart`` times the seed's length from those
    stored of the same seed (0: always), and with ``only_kept`` only if it is kept. With ``reopen`` a case taken out is
    looked at once more before it steps, as it must be where neurons to push are chosen anew.
    """
    for name, least, value in (("iters", 1, iters), ("depth", 1, depth), ("steps", 1, steps), ("pops", 1, pops)):
        if value < least:
            raise UsageError(f"queue: {name} must be at least {least}, got {value}")
    if order not in ORDERS or cases < 1 or apart < 0:
        raise UsageError(
            f"queue: order is last or first, cases at least 1, apart not negative; got {order!r}, {cases}, {apart}"
        )
    return Queue(iters, order == "last", depth, steps, pops, cases, apart, only_kept, reopen)


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue holds cases with their slopes, so that a case taken out steps at once."""

    iters: int
    newest_first: bool
    depth: int
    steps: int
    pops: int
    cases: int
    apart: float
    only_kept: bool
    reopen: bool

    def start(self, lanes: Cases) -> Cases:
        zero = torch.zeros_like(lanes.origin)
        room = lanes.x.new_zeros(len(lanes), self.depth, *lanes.x.shape[1:])
        memory = lanes.x.new_zeros(len(lanes), self.cases if self.apart else 0, *lanes.x.shape[1:])
        return lanes.note(
            queue_x=room,
            queue_slope=torch.zeros_like(room),
            oldest=zero,
            waiting=zero.clone(),
            since=zero.clone(),
            pops=zero.clone(),
            hits=zero.clone(),
            stored_x=memory,
            **({"look": torch.zeros_like(zero, dtype=torch.bool)} if self.reopen else {}),
        )

    def next(self, lanes: Cases, made: Cases, kept: Tensor, failing: Tensor) -> Next:
        stored, hits = self._stored(lanes, made, failing & kept if self.only_kept else failing)
        again = lanes.info["opening"] & (lanes.info["step"] > 0)  # looked at once more: it stands where it stood
        lanes = self._pushed(lanes, made, kept & ~again)
        info = lanes.info
        since = torch.where(info["opening"], torch.where(again, 0, self.iters), info["since"] + 1)
        turn = since >= self.iters
        taken = turn & (info["waiting"] > 0)
        ended = (turn & ~taken) | (info["step"] >= self.steps) | (hits >= self.cases)
        ended |= taken & (info["pops"] >= self.pops)
        x, slope, oldest = self._popped(lanes, made, taken)
        lanes = lanes.with_x(x).note(
            slope=slope,
            oldest=oldest,
            waiting=info["waiting"] - taken.long(),
            since=torch.where(turn, 0, since),
            pops=info["pops"] + taken,
            hits=hits,
        )
        if self.reopen:
            lanes = lanes.note(look=taken & ~info["opening"])
        return Next(lanes, ended, stored)

    def _pushed(self, lanes: Cases, made: Cases, kept: Tensor) -> Cases:
        oldest, waiting = lanes.info["oldest"], lanes.info["waiting"]
        full = waiting == self.depth
        push = kept if self.newest_first else kept & ~full
        if self.newest_first:
            oldest = oldest + (push & full)
        place = (oldest + waiting - (full & push).long()) % self.depth
        put_where(lanes.info["queue_x"], push, place, made.x)
        put_where(lanes.info["queue_slope"], push, place, made.info["slope"])
        return lanes.note(oldest=oldest, waiting=waiting + (push & ~full))

    def _popped(self, lanes: Cases, made: Cases, taken: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Where each lane stands next: at the case taken out, else at the one just made."""
        info = lanes.info
        place = (info["oldest"] + (info["waiting"] - 1 if self.newest_first else 0)) % self.depth
        x = taken_where(info["queue_x"], taken, place, made.x)
        slope = taken_where(info["queue_slope"], taken, place, made.info["slope"])
        return x, slope, info["oldest"] if self.newest_first else info["oldest"] + taken

    def _stored(self, lanes: Cases, made: Cases, failing: Tensor) -> tuple[Tensor, Tensor]:
        """Which failures are new to their seed, and how many each seed then has."""
        hits = lanes.info["hits"]
        stored = failing & (hits < self.cases)
        if self.apart:
            rows = some_rows(stored)
            away = (lanes.info["stored_x"][rows] - made.x[rows, None]).flatten(2).norm(dim=2)
            near = away <= self.apart * norms.size(lanes.info["seed_x"][rows], "l2")[:, None]
            near &= torch.arange(self.cases, device=hits.device) < hits[rows, None]
            stored[rows] &= ~near.any(1)
            put_where(lanes.info["stored_x"], stored, hits.clamp_max(self.cases - 1), made.x)
        return stored, hits + stored
