"""The numbers of an evaluation, each with its interval and what it means."""

from dataclasses import dataclass, field
from typing import Any

import torch

from assay.core.errors import UsageError
from assay.core.specs import did_you_mean
from assay.core.stats import wilson
from assay.engines.cascade import Block


@dataclass(frozen=True, slots=True)
class Share:
    """So many right out of n."""

    right: int
    n: int

    @property
    def accuracy(self) -> float:
        return self.right / self.n

    @property
    def ci95(self) -> tuple[float, float]:
        return wilson(self.right, self.n)

    def to_json(self) -> dict[str, Any]:
        return {"accuracy": round(self.accuracy, 6), "n": self.n, "ci95": [round(v, 6) for v in self.ci95]}


@dataclass(frozen=True, slots=True)
class Outcome:
    """An attack's part: what is left after it, how many inputs it saw and broke, how long it took."""

    left: Share
    tried: int
    broken: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return self.left.to_json() | {
            "tried": self.tried,
            "broken": self.broken,
            "seconds": round(self.seconds, 3),
        }


@dataclass(slots=True)
class Evaluation:
    """Clean accuracy, accuracy under each attack, and the pointwise worst case, under one protocol."""

    clean: Share
    attacks: dict[str, Outcome]
    worst: Share
    per_class: dict[str, dict[str, Any]]
    protocol: dict[str, Any]
    static: dict[str, Outcome] = field(default_factory=dict)
    static_worst: Share | None = None
    static_from: str | None = None
    warnings: list[dict[str, str]] = field(default_factory=list)
    run: str | None = None

    def accuracy(self, name: str = "worst") -> float:
        """Accuracy ``clean``, ``worst``, or under the attack of that name (white box)."""
        shares = {"clean": self.clean, "worst": self.worst, **{n: o.left for n, o in self.attacks.items()}}
        if name not in shares:
            raise UsageError(f"no number {name!r} in this evaluation; {did_you_mean(name, shares)}")
        return shares[name].accuracy

    @property
    def unreliable(self) -> bool:
        return bool(self.warnings)

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {
            "clean": self.clean.to_json(),
            "attacks": {name: outcome.to_json() for name, outcome in self.attacks.items()},
            "worst": self.worst.to_json(),
            "per_class": self.per_class,
            "warnings": self.warnings,
            "unreliable": self.unreliable,
            "protocol": self.protocol,
        }
        if self.static_worst is not None:
            told["static"] = {
                "from": self.static_from,
                "attacks": {name: outcome.to_json() for name, outcome in self.static.items()},
                "worst": self.static_worst.to_json(),
            }
        if self.run is not None:
            told["run"] = self.run
        return told

    def __repr__(self) -> str:
        numbers = ", ".join(f"{n} {o.left.accuracy:.3f}" for n, o in self.attacks.items())
        return f"<clean {self.clean.accuracy:.3f}, {numbers}, worst {self.worst.accuracy:.3f}, n={self.clean.n}>"


def tally(blocks: list[Block], classes: tuple[str, ...], protocol: dict[str, Any], static: str | None) -> Evaluation:
    """The numbers of all blocks together."""
    y = torch.cat([block.y for block in blocks])
    right = torch.cat([block.right for block in blocks])
    columns = {"attacks": right.clone(), "static": right.clone()}
    outcomes: dict[str, dict[str, Outcome]] = {"attacks": {}, "static": {}}
    for key in blocks[0].tried:
        column, _, name = key.partition("/")
        tried = torch.cat([block.tried[key] for block in blocks])
        broken = torch.cat([block.broken[key] for block in blocks])
        columns[column] &= ~broken
        left = columns[column] if protocol["cascade"] else right & ~broken
        outcomes[column][name] = Outcome(
            Share(int(left.sum()), len(y)),
            int(tried.sum()),
            int(broken.sum()),
            sum(block.seconds[key] for block in blocks),
        )
    return Evaluation(
        clean=Share(int(right.sum()), len(y)),
        attacks=outcomes["attacks"],
        worst=Share(int(columns["attacks"].sum()), len(y)),
        per_class=_per_class(y, right, columns["attacks"], classes),
        protocol=protocol,
        static=outcomes["static"],
        static_worst=Share(int(columns["static"].sum()), len(y)) if static is not None else None,
        static_from=static,
    )


def numbers_table(result: Evaluation) -> dict[str, Any]:
    """The evaluation as a table for the report: a row a number, static and white-box numbers apart."""
    protocol = result.protocol
    static = result.static_worst is not None
    rows = [{"name": "clean", "cells": [result.clean.to_json()] * (1 + static)}]
    for name, outcome in result.attacks.items():
        cells = [outcome.left.to_json(), *([result.static[name].left.to_json()] if static else [])]
        rows.append({"name": f"left after {name}" if protocol["cascade"] else name, "cells": cells})
    worst = [result.worst.to_json(), *([result.static_worst.to_json()] if result.static_worst else [])]
    rows.append({"name": "worst case", "cells": worst})
    return {
        "title": f"{protocol['data']}, n={protocol['n']}, {protocol['norm']} eps {protocol['eps_text']}",
        "models": ["white box", *([f"static, made on {result.static_from}"] if static else [])],
        "rows": rows,
        "note": "95 % Wilson intervals. " + " ".join(f"UNRELIABLE: {w['message']}." for w in result.warnings),
    }


def _per_class(
    y: torch.Tensor, right: torch.Tensor, standing: torch.Tensor, classes: tuple[str, ...]
) -> dict[str, dict[str, Any]]:
    """Clean and worst-case accuracy of each class that occurs."""
    table = {}
    for label in y.unique().tolist():
        mine = y == label
        n = int(mine.sum())
        table[classes[label]] = {
            "n": n,
            "clean": Share(int(right[mine].sum()), n).to_json(),
            "worst": Share(int(standing[mine].sum()), n).to_json(),
        }
    return table
