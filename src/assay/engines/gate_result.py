"""The result of a gate: rows that are met, not met, or cannot be decided."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["met", "not met", "undecided", "unreliable"]


@dataclass(frozen=True, slots=True)
class GateRow:
    """One thing that was required: a clause, a floor of a class, no regression.

    ``undecided`` is a number whose interval leaves both answers open; ``needed`` is then how many inputs would
    decide it if the difference is what it looks like.
    """

    name: str  # robust, clean_drop, pgd, robust[cat], regressions …
    clause: str  # robust>=0.4
    status: Status
    message: str  # one line for people, whatever the status
    value: float | None = None
    ci95: tuple[float, float] | None = None
    n: int | None = None
    needed: int | None = None

    @property
    def met(self) -> bool:
        return self.status == "met"


@dataclass(frozen=True, slots=True)
class GateFailure:
    """An input that the model gets wrong, for those who look at single ones: SARIF results, a table of examples."""

    id: str  # of the case, as in runs and reports
    kind: str  # the rule it belongs to: "robust", "regression", an attack's name
    true: str
    predicted: str
    attack: str = ""
    place: str = ""  # the data file or folder it came from, relative to the working folder where it lies inside
    row: int | None = None
    size: float | None = None
    picture: str = ""  # relative path of an image of it, where there is one


@dataclass(frozen=True, slots=True, repr=False)
class Gate:
    """What a gate found.

    ``compared`` has, for every number that both models have, how they differ over the same inputs: ``n``, ``b`` right
    for the baseline only, ``c`` for the new one only, ``difference`` (the drop), ``ci95``, ``p`` of McNemar's test.
    ``protocol`` holds besides what was measured how it was decided: ``confidence``, ``decide``.
    """

    subject: str  # the model's spec, or the run's name
    requirement: str
    rows: tuple[GateRow, ...]
    baseline: str | None = None
    attacks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # per attack: accuracy, ci95, n, seconds
    warnings: tuple[Mapping[str, str], ...] = ()  # trust checks: name, message
    failures: tuple[GateFailure, ...] = ()  # a sample; ``failed`` counts all
    failed: int = 0
    protocol: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    complete: bool = True  # False where the time budget ended first: the numbers are of the inputs before
    run: str | None = None  # the folder that holds the examples, where they were kept
    compared: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    fuzzed: str | None = None  # the run folder of the regressions that fuzzing found

    @property
    def met(self) -> bool:
        """Whether everything holds: a gate that is undecided or whose number is unreliable does not pass."""
        return all(row.met for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        from dataclasses import asdict

        return {"met": self.met, **asdict(self)}

    def __repr__(self) -> str:
        said = ", ".join(f"{row.clause} {row.status}" for row in self.rows[:4])
        more = f" and {len(self.rows) - 4} more" if len(self.rows) > 4 else ""
        return f"<gate {'met' if self.met else 'NOT met'}: {said}{more}>"
