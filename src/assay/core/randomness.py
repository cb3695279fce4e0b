"""All randomness: generators named by a path, and numbers hashed from (seed, path, row).

Nothing here has hidden state, so a resumed run stores no random state, and a row's numbers depend on
neither its neighbours nor its place in the batch.
"""

import hashlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor

Path = int | str


def _digest(seed: int, path: tuple[Path, ...]) -> int:
    text = repr((int(seed), *((type(p).__name__, str(p)) for p in path)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little", signed=True)


def generator(seed: int, *path: Path, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator that depends on nothing but ``seed`` and ``path``.

    >>> a = torch.rand(1, generator=generator(1, "shuffle", 3))
    >>> bool(a == torch.rand(1, generator=generator(1, "shuffle", 3)))
    True
    """
    return torch.Generator(device).manual_seed(_digest(seed, path) & (2**63 - 1))


@dataclass(frozen=True, slots=True)
class Stream:
    """A place in the tree of random streams: a seed and the path to here."""

    seed: int
    path: tuple[Path, ...] = ()

    def at(self, *path: Path) -> "Stream":
        """The stream below this one."""
        return Stream(self.seed, (*self.path, *path))

    def generator(self, device: torch.device | str = "cpu") -> torch.Generator:
        """A sequential generator for work that is done in one order, such as shuffling."""
        return generator(self.seed, *self.path, device=device)

    def rows(self, ids: Tensor) -> "Rows":
        """Random numbers for rows named by integer ``ids`` (N,) or (N, m)."""
        key = torch.full((len(ids),), _digest(self.seed, self.path), dtype=torch.int64, device=ids.device)
        for column in ids.unbind(1) if ids.dim() == 2 else (ids,):
            key = _mix64(key ^ _mix64(column.to(torch.int64)))
        return Rows(key)


@dataclass(frozen=True, slots=True)
class Rows:
    """Row-wise random numbers: row i of a draw depends on ``key[i]``, the label of the draw, and nothing else."""

    key: Tensor

    def __len__(self) -> int:
        return len(self.key)

    def __getitem__(self, rows: slice | Tensor) -> "Rows":
        return Rows(self.key[rows])

    def at(self, label: int) -> "Rows":
        """Independent numbers for the same rows: one label for each draw of an algorithm."""
        return Rows(_mix64(self.key + _signed(_GOLDEN * (label + 1))))

    def uniform(self, shape: tuple[int, ...], low: float = 0.0, high: float = 1.0) -> Tensor:
        """Uniform float32 numbers from low to high, (N, *shape); in [0, 1) the upper end never comes out."""
        bits = _bits(self.key, math.prod(shape)).reshape(len(self.key), *shape)
        unit = ((bits >> 8) & 0xFFFFFF).to(torch.float32).mul_(2.0**-24)
        return unit if (low, high) == (0.0, 1.0) else unit.mul_(high - low).add_(low)

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """Standard normal float32 numbers, (N, *shape), by the Box–Muller transform."""
        radius = torch.sqrt(-2.0 * torch.log1p(-self.at(-2).uniform(shape)))
        return radius * torch.cos(2.0 * math.pi * self.at(-3).uniform(shape))

    def integers(self, shape: tuple[int, ...], high: int) -> Tensor:
        """Integers in 0..high-1 for ``high`` up to 2^31, (N, *shape)."""
        bits = _bits(self.key, math.prod(shape)).reshape(len(self.key), *shape)
        return ((bits.to(torch.int64) & 0xFFFFFFFF) * high) >> 32

    def poisson(self, rate: Tensor) -> Tensor:
        """Poisson numbers with mean ``rate`` (N, *shape), whole, in its dtype."""
        return _poisson(rate.double(), self.uniform(tuple(rate.shape[1:])).double() + 2.0**-25).to(rate.dtype)


_GOLDEN = -7046029254386353131  # 2^64 / golden ratio, odd, as a signed 64-bit number


def _signed(number: int) -> int:
    """The number modulo 2^64 as a signed one: Python's integers do not wrap, torch's do."""
    return (number + 2**63) % 2**64 - 2**63


def _mix64(z: Tensor) -> Tensor:
    """The finaliser of splitmix64; int64 arithmetic wraps, shifts are made logical by a mask."""
    z = z + _GOLDEN
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return z ^ ((z >> 31) & 0x1FFFFFFFF)


def _mix32(h: Tensor) -> Tensor:
    """A 32-bit finaliser (xor-shift-multiply), in place; int32 because CPUs vectorise it and int64 not."""
    h ^= (h >> 16) & 0xFFFF
    h *= 0x21F0AAAD
    h ^= (h >> 15) & 0x1FFFF
    h *= 0x735A2D97
    h ^= (h >> 15) & 0x1FFFF
    return h


def _bits(key: Tensor, width: int) -> Tensor:
    """32 random bits for each of ``width`` places of each row, int32 (N, width)."""
    low = key.to(torch.int32)  # wraps, which is what a hash wants
    high = (key >> 32).to(torch.int32)
    place = torch.arange(width, dtype=torch.int32, device=key.device).mul_(-1640531527)
    h = _mix32(place + low[:, None])
    h ^= high[:, None]
    return _mix32(h)


def _poisson(rate: Tensor, level: Tensor) -> Tensor:
    """The quantiles of Poisson distributions at ``level`` above 0 and below 1, both float64.

    Up to a rate of 10 by summing probabilities. Above from the normal quantile with two terms of correction
    (Giles 2016), which is one off in fewer than 3 of 1000 numbers.
    """
    low = rate.clamp_max(10.0)
    term = torch.exp(-low)
    below, count = term.clone(), torch.zeros_like(rate)
    for k in range(1, 36):  # beyond lies less than 2^-25 of the distribution with rate 10
        count += level > below
        term *= low / k
        below += term
    normal, root = torch.special.ndtri(level), rate.clamp_min(10.0).sqrt()
    high = rate + root * normal + (2 + normal**2) / 6 - (2 * normal + normal**3) / (72 * root)
    return torch.where(rate > 10.0, high.floor().clamp_min(0.0), count)
