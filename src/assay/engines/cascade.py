"""A suite on one block of cases: only inputs that are still robust go on to the next attack."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from assay.core import norms
from assay.core.cases import Cases, check_made, inside
from assay.core.chunks import Chunks
from assay.core.precision import full_precision
from assay.core.randomness import Rows, Stream
from assay.core.registry import Bound
from assay.subjects.counted import Counted
from assay.subjects.hurried import Hurried
from assay.subjects.target import Target, answer, confidence

log = logging.getLogger("assay")

BALL_TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True)
class Column:
    """Where examples are made, who judges them, and how they are made.

    ``streams`` names the randomness of an attack where it is not its label: one attack at several eps has one stream,
    so that in a larger ball it starts alike. ``limited`` says of attacks that the number of classes forbids or cuts
    down why.
    """

    maker: Target
    judge: Target
    attacks: dict[str, Bound]
    streams: Mapping[str, str] = field(default_factory=dict)
    limited: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Effort:
    """What an attack took: seconds, and how many inputs the maker answered and took gradients of.

    Of an object that asks a model of its own nobody counts, and both are None.
    """

    seconds: float
    forward: int | None
    gradient: int | None


@dataclass(slots=True)
class Block:
    """The outcome of one block: for each ``column/attack`` which rows it was tried on, which it broke, and how far.

    ``size`` is the size of each perturbation that broke its row, and infinite elsewhere. ``pred`` is the class of each
    clean row; blocks of older runs do not have it.
    """

    y: Tensor
    right: Tensor
    tried: dict[str, Tensor] = field(default_factory=dict)
    broken: dict[str, Tensor] = field(default_factory=dict)
    size: dict[str, Tensor] = field(default_factory=dict)
    effort: dict[str, Effort] = field(default_factory=dict)
    pred: Tensor | None = None

    def tensors(self) -> dict[str, Tensor]:
        columns = {"y": self.y, "right": self.right, **({} if self.pred is None else {"pred": self.pred})}
        for name in ("tried", "broken", "size"):
            columns |= {f"{name}/{key}": rows for key, rows in getattr(self, name).items()}
        return columns

    @staticmethod
    def of(columns: dict[str, Tensor], effort: dict[str, Any]) -> "Block":
        """A block as it was stored: its tensors, and the effort of each key as a list."""
        keys = {name: {key: columns[f"{name}/{key}"] for key in effort} for name in ("tried", "broken", "size")}
        spent = {key: Effort(*e) for key, e in effort.items()}
        return Block(columns["y"], columns["right"], **keys, effort=spent, pred=columns.get("pred"))


def run_suite(
    column: Column,
    cases: Cases,
    right: Tensor,
    rng: Stream,
    chunks: Chunks,
    block: Block,
    name: str,
    *,
    each: bool,
    first: int = 0,
    watch: Callable[[str], None] = lambda _: None,
) -> list[Cases]:
    """Run the attacks on the rightly classified rows, fill in the block, and return every example made.

    ``first`` is the place of the column's first attack among all of the evaluation.
    """
    standing = right.clone()
    made = []
    for index, (label, attack) in enumerate(column.attacks.items(), first):
        watch(label)
        started, maker = time.perf_counter(), Counted(_maker(column.maker, attack))
        rows = (right if each else standing).nonzero().flatten()
        stream = rng.at(column.streams.get(label, label))
        examples = _attacked(maker, column.judge, attack, cases[rows], stream, chunks)
        fooled = examples.info["success"]
        standing[rows[fooled]] = False
        key = f"{name}/{label}"
        block.tried[key] = _mask(rows, len(right))
        block.broken[key] = _mask(rows[fooled], len(right))
        block.size[key] = torch.full((len(right),), torch.inf)
        block.size[key][rows[fooled].cpu()] = examples.info["size"][fooled].float().cpu()
        counts = (None, None) if attack.entry.own_model else (maker.forward, maker.gradient)
        block.effort[key] = Effort(time.perf_counter() - started, *counts)
        place = torch.full((len(examples),), index)
        made.append(examples.to("cpu").note(attack=place, static=torch.full_like(place, int(name == "static"))))
    return made


def _maker(maker: Target, attack: Bound) -> Target:
    return maker.for_gradients() if isinstance(maker, Hurried) and "grad" in attack.entry.needs else maker


def _attacked(maker: Counted, judge: Target, attack: Bound, cases: Cases, rng: Stream, chunks: Chunks) -> Cases:
    """The attack's examples, judged anew: one that left its ball or the bounds is no success.

    An example that fools the maker with its shorter numbers, and not the judge, is made once more with whole ones.
    """
    found = _once(maker, judge, attack, cases, rng, chunks)
    calm = maker.without_hurry() or (maker if maker.device.type == "cuda" else None)
    left = (~found.info["success"]).nonzero().flatten()
    if calm is None or calm.target is not judge or not len(left):  # what does not transfer is no matter of numbers
        return found
    doubtful = left[answer(maker.target, found.x[left], chunks).argmax(1) != cases.y[left]]
    if len(doubtful):
        with full_precision():
            found.put(doubtful, _once(calm, judge, attack, cases[doubtful], rng, chunks))
    return found


def _once(maker: Target, judge: Target, attack: Bound, cases: Cases, rng: Stream, chunks: Chunks) -> Cases:
    keys = rng.rows(cases.origin).key

    def work(x: Tensor, y: Tensor, key: Tensor) -> Tensor:
        return check_made(attack(maker, x, y, rng=Rows(key)), x, f"attack {attack.entry.name!r}")

    # Attacks of users and of other libraries need not know what to do with no inputs at all.
    x = chunks.map(work, cases.x, cases.y, keys) if len(cases) else cases.x
    with full_precision():
        logits = answer(judge, x, chunks)
    wrong = (logits.argmax(1) != cases.y) | ~logits.isfinite().all(1)
    allowed, size = within_rules(attack, x, cases.x, judge.spec.bounds)
    stray = int((wrong & ~allowed).sum())
    if stray:
        log.warning("attack %s: %d examples left the ball or the bounds and do not count", attack.entry.name, stray)
    said = {"pred": logits.argmax(1), "confidence": confidence(judge, logits)}
    return cases.with_x(x).note(success=wrong & allowed, allowed=allowed, size=size, **said)


def within_rules(attack: Bound, made: Tensor, clean: Tensor, bounds: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Which examples are inside the bounds and the attack's ball, and how far they are from their inputs, (N,) both."""
    allowed = inside(made, bounds)
    size = norms.size(made - clean, norms.check(str(attack.params.get("norm", "linf"))))
    if attack.params.get("eps") is not None:
        allowed &= size <= attack.params["eps"] * (1 + 1e-4) + BALL_TOLERANCE
    return allowed, size


def _mask(rows: Tensor, n: int) -> Tensor:
    mask = torch.zeros(n, dtype=torch.bool)
    mask[rows.cpu()] = True
    return mask
