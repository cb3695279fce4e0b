"""A suite on one block of cases: only inputs that are still robust go on to the next attack."""

import logging
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core import norms
from assay.core.cases import Cases, check_made, inside
from assay.core.chunks import Chunks
from assay.core.randomness import Rows, Stream
from assay.core.registry import Bound
from assay.subjects.target import Target, answer

log = logging.getLogger("assay")

BALL_TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True)
class Column:
    """Where examples are made, who judges them, and how they are made."""

    maker: Target
    judge: Target
    attacks: dict[str, Bound]


@dataclass(slots=True)
class Block:
    """The outcome of one block: for each ``column/attack`` which rows it was tried on and which it broke."""

    y: Tensor
    right: Tensor
    tried: dict[str, Tensor]
    broken: dict[str, Tensor]
    seconds: dict[str, float]

    def tensors(self) -> dict[str, Tensor]:
        columns = {"y": self.y, "right": self.right}
        columns |= {f"tried/{key}": rows for key, rows in self.tried.items()}
        return columns | {f"broken/{key}": rows for key, rows in self.broken.items()}

    @staticmethod
    def of(columns: dict[str, Tensor], seconds: dict[str, float]) -> "Block":
        tried = {key: columns[f"tried/{key}"] for key in seconds}
        return Block(columns["y"], columns["right"], tried, {key: columns[f"broken/{key}"] for key in seconds}, seconds)


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
) -> list[Cases]:
    """Run the attacks on the rightly classified rows, fill in the block, and return every example made."""
    standing = right.clone()
    made = []
    for index, (label, attack) in enumerate(column.attacks.items()):
        started = time.perf_counter()
        rows = (right if each else standing).nonzero().flatten()
        examples = _attacked(column, attack, cases[rows], rng.at(label), chunks)
        fooled = examples.info["success"]
        standing[rows[fooled]] = False
        key = f"{name}/{label}"
        block.tried[key] = _mask(rows, len(right))
        block.broken[key] = _mask(rows[fooled], len(right))
        block.seconds[key] = time.perf_counter() - started
        place = torch.full((len(examples),), index)
        made.append(examples.to("cpu").note(attack=place, static=torch.full_like(place, int(name == "static"))))
    return made


def _attacked(column: Column, attack: Bound, cases: Cases, rng: Stream, chunks: Chunks) -> Cases:
    """The attack's examples, judged anew: one that left its ball or the bounds is no success."""
    keys = rng.rows(cases.origin).key

    def work(x: Tensor, y: Tensor, key: Tensor) -> Tensor:
        return check_made(attack(column.maker, x, y, rng=Rows(key)), x, f"attack {attack.entry.name!r}")

    # Attacks of users and of other libraries need not know what to do with no inputs at all.
    x = chunks.map(work, cases.x, cases.y, keys) if len(cases) else cases.x
    logits = answer(column.judge, x, chunks)
    wrong = (logits.argmax(1) != cases.y) | ~logits.isfinite().all(1)
    allowed = inside(x, column.judge.spec.bounds)
    size = norms.size(x - cases.x, norms.check(str(attack.params.get("norm", "linf"))))
    if "eps" in attack.params:
        allowed &= size <= attack.params["eps"] * (1 + 1e-4) + BALL_TOLERANCE
    stray = int((wrong & ~allowed).sum())
    if stray:
        log.warning("attack %s: %d examples left the ball or the bounds and do not count", attack.entry.name, stray)
    return cases.with_x(x).note(success=wrong & allowed, pred=logits.argmax(1), size=size)


def _mask(rows: Tensor, n: int) -> Tensor:
    mask = torch.zeros(n, dtype=torch.bool)
    mask[rows.cpu()] = True
    return mask
