"""One pool of parents for the whole campaign: take one, make mutants of it, put back what is worth it."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.stages.schedules import Members, Next, standing

_BEHIND = 1e12  # more than any mark: who was taken often enough comes after everyone who was not
PICKS = ("prob", "uniform", "recent", "last", "time")


@register("schedule", paper="DeepHunter 2019")
def pool(
    *,
    pick: str = "prob",
    mutants: int = 20,
    most: int = 10_000,
    first: float = 0.8,
    decay: float = 5.0,
    least: float = 0.3,
    newest: int = 5,
    temperature: float = 1.0,
    times: int = 0,
    depth: int = 0,
    failing: bool = False,
) -> "Pool":
    """Take a parent, make ``mutants`` cases of it; those kept that do not fail join the pool, which holds all seeds.

    ``pick``: ``prob`` walks the pool in a circle and takes a parent with probability max(least, first - f/decay), f the
    times it was taken before; ``uniform``; ``recent``: the ``newest`` ones and one drawn from all, uniformly
    (TensorFuzz); ``last``: the newest that is left, and one that gained nothing is not taken again (DeepTest);
    ``time``: with probability proportional to exp(-age / temperature), the age in rounds over the seeds, none twice in
    a unit (CAGFuzz), and where ``times`` says so none more often than that while others are left: for a mutator that
    makes the same again. Beside the seeds the pool holds ``most`` cases, of which the oldest go first. With a
    ``depth``, no case is more steps away from its seed: those that are so many do not join. With ``failing``, failures
    join too.
    """
    if pick not in PICKS:
        raise UsageError(f"pool: pick is one of {', '.join(PICKS)}; got {pick!r}")
    if mutants < 1 or most < 1 or newest < 1:
        raise UsageError(f"pool: mutants, most and newest must be at least 1; got {mutants}, {most}, {newest}")
    if not 0 < least <= first <= 1 or decay <= 0:
        raise UsageError(
            f"pool: 0 < least <= first <= 1 and decay above 0; got least={least}, first={first}, decay={decay}"
        )
    if not 0 < temperature < math.inf or depth < 0 or times < 0:
        raise UsageError(
            f"pool: temperature must be above 0, times and depth not negative; got {temperature}, {times}, {depth}"
        )
    return Pool(pick, mutants, most, first, decay, least, newest, temperature, times, depth, failing)


@dataclass(frozen=True, slots=True)
class Pool:
    how: str
    mutants: int
    most: int
    first: float
    decay: float
    least: float
    newest: int
    temperature: float
    times: int
    depth: int
    failing: bool

    def start(self, lanes: Cases) -> Cases:
        return lanes

    def next(self, lanes: Cases, made: Cases, kept: Tensor, failing: Tensor) -> Next:
        return Next(standing(lanes, made), lanes.info["step"] >= self.mutants, failing)

    def joins(self, kept: Tensor, failing: Tensor, depth: Tensor) -> Tensor:
        good = kept if self.failing else kept & ~failing
        # What is made of a member is one step further than it: a member at the last step would be taken for nothing.
        return good & (depth + 1 < self.depth) if self.depth else good

    def pick(self, members: Members, n: int, rng: Stream) -> Tensor:
        """The parents to work next, (n,) places in the pool; the same one may come more than once."""
        size = len(members.taken)
        draw = rng.generator()
        if self.how == "uniform":
            return torch.randint(size, (n,), generator=draw)
        if self.how == "recent":
            window = min(self.newest, size)
            lot = torch.randint(window + 1, (n,), generator=draw)
            anyone = torch.randint(size, (n,), generator=draw)
            return torch.where(lot == window, anyone, size - 1 - lot)
        if self.how == "last":
            return self._last(members, n)
        if self.how == "time":
            return self._timed(members, n, draw)
        return self._walk(members, n, draw)

    def _walk(self, members: Members, n: int, draw: torch.Generator) -> Tensor:
        """Round the pool from where the last walk ended; who is passed by waits for the next round."""
        taken, place = members.taken.clone(), members.cursor
        picks: list[Tensor] = []
        left = n
        while left > 0:
            ahead = (place + torch.arange(min(len(taken), 4 * n))) % len(taken)
            chance = (self.first - taken[ahead] / self.decay).clamp_min(self.least)
            some = (torch.rand(len(ahead), generator=draw) < chance).nonzero().squeeze(1)[:left]
            picks.append(ahead[some])
            taken[ahead[some]] += 1
            left -= len(some)
            place = int(ahead[some[-1]] + 1 if left == 0 and len(some) else ahead[-1] + 1) % len(taken)
        return torch.cat(picks)

    def _timed(self, members: Members, n: int, draw: torch.Generator) -> Tensor:
        """Draws without putting back: noise of Gumbel's on the logarithms of the weights, of which the largest win."""
        # Paper: one parent at a time, which may be the same again at once. Here: a batch of others, because what a
        # trained generator makes of the same parent is the same.
        uniform = torch.rand(len(members.taken), generator=draw, dtype=torch.float64)
        noise = -torch.log(-torch.log(uniform.clamp(1e-300, 1 - 1e-16)))
        marks = recency(members.entered, members.now, self.temperature) + noise
        if self.times:  # the newest have nearly all the weight: without an end to it they would keep it for ever
            marks -= _BEHIND * (members.taken // self.times)
        order = marks.argsort(descending=True, stable=True)
        return order.repeat(-(-n // len(order)))[:n]

    @staticmethod
    def _last(members: Members, n: int) -> Tensor:
        """From the newest backwards, leaving out those that were taken and gained nothing."""
        spent = (members.taken > 0) & (members.gained == 0)
        left = (~spent).nonzero().squeeze(1).flip(0)
        if not len(left):  # all are spent: begin again
            left = torch.arange(len(spent)).flip(0)
        return left.repeat(-(-n // len(left)))[:n]


def recency(entered: Tensor, now: float, temperature: float) -> Tensor:
    """The logarithm of the probability that each member is taken, (N,) float64: a softmax over times of entry."""
    # Paper: exp(entered - now) over its sum, which is 0/0 once the run is old. Shifted by the largest it is stable.
    return torch.log_softmax((entered - now) / temperature, 0)
