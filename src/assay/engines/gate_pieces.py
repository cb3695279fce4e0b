"""What is put together while a gate works."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.engines.gate_decide import Rules
from assay.engines.gate_failures import MOST
from assay.engines.gate_result import Gate, GateFailure, GateRow
from assay.engines.gate_sides import Side, compared_to

BASELINE = "name it: --baseline OLD_MODEL"
NOTHING = "nothing is required; write for instance --require 'robust>=0.4, clean_drop<=0.02'"


@dataclass(slots=True)
class Pieces:
    """The model, the one it is compared with, and the single inputs that are shown."""

    side: Side | None = None
    other: Side | None = None
    failures: tuple[GateFailure, ...] = ()
    failed: int = 0
    run: str | None = None
    fuzzed: str | None = None

    def add(self, failures: Sequence[GateFailure], count: int) -> None:
        """Name some and count all."""
        self.failures, self.failed = (*self.failures, *failures), self.failed + count

    def gate(
        self, subject: str, require: str, rows: Sequence[GateRow], rules: Rules, took: float, baseline: str | None
    ) -> Gate:
        """All of it."""
        side, other = self.side or Side("", {}), self.other
        decided = {"confidence": rules.level, "decide": "point" if rules.point else "interval"}
        return Gate(
            subject=subject,
            requirement=require,
            rows=tuple(rows),
            baseline=baseline,
            attacks=side.attacks,
            warnings=(*side.warnings, *(() if other is None else other.warnings)),
            failures=_shared_out(self.failures),
            failed=self.failed,
            protocol={**side.protocol, **side.unchecked, **decided},
            seconds=round(took, 3),
            complete=side.complete,
            run=self.run,
            compared=compared_to(side, other),
            fuzzed=self.fuzzed,
        )


def _shared_out(failures: Sequence[GateFailure]) -> tuple[GateFailure, ...]:
    """At most so many, of every kind as many as there are of the others: none crowds out the rest."""
    if len(failures) <= MOST:
        return tuple(failures)
    kinds: dict[str, list[GateFailure]] = {}
    for failure in failures:
        kinds.setdefault(failure.kind, []).append(failure)
    ranked = sorted((place, name) for name, some in kinds.items() for place in range(len(some)))
    kept = {(name, place) for place, name in ranked[:MOST]}
    return tuple(f for name, some in kinds.items() for place, f in enumerate(some) if (name, place) in kept)


def name_of(model: object, live: str = "module") -> str:
    """A model as text; a live one has no name of its own."""
    return str(model) if isinstance(model, str | Path) else live
