"""The work on one block of an evaluation: clean answers, then every column's attacks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.precision import full_precision
from assay.core.randomness import Stream
from assay.engines.cascade import Block, Column, run_suite
from assay.engines.once_more import once_more
from assay.subjects.target import Target, answer


class Outcome(NamedTuple):
    """What came of a block, and every example that was made; on the CPU."""

    block: Block
    made: list[Cases]


def where(start: int, stop: int) -> str:
    """Which block it was, for people."""
    return f"in the block of cases {start} to {stop - 1}"


@dataclass(frozen=True, slots=True)
class BlockWork:
    """All that a block depends on besides its rows."""

    target: Target
    columns: Mapping[str, Column]
    rng: Stream
    chunks: Chunks
    each: bool

    def twice(self, cases: Cases, start: int, tell: Callable[[str], None]) -> Outcome:
        """The block, worked once more where the model fails in it; ``start`` is the place of its first case."""
        return once_more(partial(self, cases, tell), where(start, start + len(cases)))

    def __call__(self, cases: Cases, tell: Callable[[str], None]) -> Outcome:
        """The block of cases on the target's device; ``tell`` hears the name of each attack as it begins."""
        with full_precision():  # as attacked inputs are judged
            given = answer(self.target, cases.x, self.chunks).argmax(1)
        right = given == cases.y
        block = Block(cases.y.cpu(), right.cpu(), pred=given.cpu())
        made: list[Cases] = []
        first = 0
        for name, column in self.columns.items():
            place = 0 if name == "static" else first  # a static example belongs to the attack of its white-box twin
            made += run_suite(
                column, cases, right, self.rng, self.chunks, block, name, each=self.each, first=place, watch=tell
            )
            first += len(column.attacks)
        return Outcome(block, made)
