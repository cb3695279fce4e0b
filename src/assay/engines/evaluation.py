"""The numbers of an evaluation, each with its interval and what it means."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.specs import did_you_mean
from assay.core.stats import wilson
from assay.engines.cascade import Block, Effort
from assay.engines.protocol import differences

if TYPE_CHECKING:
    from assay.engines.regress import Regressed


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
class Sizes:
    """How large the perturbations of an attack that looks for the smallest are, over the inputs it broke."""

    n: int
    mean: float
    low: float  # first tenth
    median: float
    high: float  # last tenth

    @staticmethod
    def of(sizes: Tensor) -> "Sizes | None":
        """Of the finite sizes (the others stand for inputs that did not break)."""
        found = sizes[sizes.isfinite()].double()
        if not len(found):
            return None
        low, median, high = found.quantile(torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)).tolist()
        return Sizes(len(found), float(found.mean()), low, median, high)

    def to_json(self) -> dict[str, Any]:
        numbers = {"mean": self.mean, "p10": self.low, "median": self.median, "p90": self.high}
        return {"n": self.n, **{name: round(value, 6) for name, value in numbers.items()}}


@dataclass(frozen=True, slots=True)
class Outcome:
    """An attack's part: what is left after it, how many inputs it saw and broke, and what it took.

    Success is counted over the inputs it was tried on, all of them rightly classified before.
    """

    left: Share
    tried: int
    broken: int
    effort: Effort
    sizes: Sizes | None = None

    def to_json(self) -> dict[str, Any]:
        told = self.left.to_json() | {
            "tried": self.tried,
            "broken": self.broken,
            "success_rate": round(self.broken / self.tried, 6) if self.tried else None,
            "queries": {"forward": self.effort.forward, "gradient": self.effort.gradient},
            "seconds": round(self.effort.seconds, 3),
        }
        return told | ({"size": self.sizes.to_json()} if self.sizes is not None else {})


@dataclass(slots=True)
class Evaluation:
    """Clean accuracy, accuracy under each attack, and the pointwise worst case, under one protocol.

    ``parts`` has the worst cases of ``seen`` and ``unseen`` attacks apart, ``curve`` that at each of several eps,
    ``mean`` the mean over attacks that each saw every input, ``minimal`` the smallest perturbations found. ``not_made``
    has the trust checks that this target does not allow, each with the reason. Where a budget of ``queries`` or of
    time ended before the work did, ``complete`` is False and the numbers are of the inputs before. ``regress`` has
    what became of the failures of earlier runs, which no number counts.
    """

    clean: Share
    attacks: dict[str, Outcome]
    worst: Share
    per_class: dict[str, dict[str, Any]]
    protocol: dict[str, Any]
    parts: dict[str, Share] = field(default_factory=dict)
    curve: dict[float, Share] = field(default_factory=dict)
    mean: float | None = None
    minimal: Sizes | None = None
    static: dict[str, Outcome] = field(default_factory=dict)
    static_worst: Share | None = None
    static_from: str | None = None
    warnings: list[dict[str, str]] = field(default_factory=list)
    ignored: tuple[str, ...] = ()
    not_made: dict[str, str] = field(default_factory=dict)
    run: str | None = None
    access: str = "white box"
    complete: bool = True
    queries: dict[str, Any] | None = None
    regress: "Regressed | None" = None
    classes: tuple[str, ...] = field(default=(), repr=False)  # in the target's order, which the labels in blocks go by
    blocks: tuple[Block, ...] = field(default=(), repr=False)  # which inputs are right: what pairing needs
    examples: Cases | None = field(default=None, repr=False)  # some that fool the model, where they were asked for

    def accuracy(self, name: str = "worst") -> float:
        """Accuracy ``clean``, ``worst``, of a part (``seen``), or under the attack of that name (white box)."""
        shares = {
            "clean": self.clean,
            "worst": self.worst,
            **{n: o.left for n, o in self.attacks.items()},
            **self.parts,
        }
        if name not in shares:
            raise UsageError(f"no number {name!r} in this evaluation; {did_you_mean(name, shares)}")
        return shares[name].accuracy

    def compared(self, other: "Evaluation", name: str = "worst") -> float:
        """How much higher this accuracy is than the other's; numbers of unlike protocols are refused."""
        unlike = differences(self.protocol, other.protocol)
        if unlike:
            raise UsageError(f"these numbers cannot be compared: {'; '.join(unlike)}")
        return self.accuracy(name) - other.accuracy(name)

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
            "ignored_checks": list(self.ignored),
            "checks_not_made": self.not_made,
            "access": self.access,
            "complete": self.complete,
            "protocol": self.protocol,
        }
        if self.regress is not None:
            told = {"regress": self.regress.to_json(), **told}
        if self.parts:
            told["parts"] = _shares(self.parts)
        if self.curve:
            told["curve"] = [{"eps": eps, **share.to_json()} for eps, share in self.curve.items()]
        if self.mean is not None:
            told["mean"] = round(self.mean, 6)
        if self.minimal is not None:
            told["minimal"] = self.minimal.to_json()
        if self.static_worst is not None:
            told["static"] = {
                "from": self.static_from,
                "attacks": {name: outcome.to_json() for name, outcome in self.static.items()},
                "worst": self.static_worst.to_json(),
            }
        if self.queries is not None:
            told["queries"] = self.queries
        if self.run is not None:
            told["run"] = self.run
        return told

    def __repr__(self) -> str:
        numbers = ", ".join(f"{n} {o.left.accuracy:.3f}" for n, o in self.attacks.items())
        trust = f", UNRELIABLE: {', '.join(w['name'] for w in self.warnings)}" if self.warnings else ""
        return f"<clean {self.clean.accuracy:.3f}, {numbers}, worst {self.worst.accuracy:.3f}, n={self.clean.n}{trust}>"


def _shares(named: Mapping[str, Share]) -> dict[str, Any]:
    return {name: share.to_json() for name, share in named.items()}


def numbers_table(result: Evaluation) -> dict[str, Any]:
    """The evaluation as a table for the report: a row a number, static and white-box numbers apart."""
    protocol = result.protocol
    static = result.static_worst is not None
    rows = [{"name": "clean", "cells": [result.clean.to_json()] * (1 + static)}]
    for name, outcome in result.attacks.items():
        cells = [outcome.left.to_json(), *([result.static[name].left.to_json()] if static else [])]
        rows.append({"name": f"left after {name}" if protocol["cascade"] else name, "cells": cells})
    for name, share in result.parts.items():
        rows.append({"name": f"worst case, {name}", "cells": [share.to_json()]})
    for eps, share in result.curve.items():
        rows.append({"name": f"worst case at eps {eps:g}", "cells": [share.to_json()]})  # no static number to show
    worst = [result.worst.to_json(), *([result.static_worst.to_json()] if result.static_worst else [])]
    rows.append({"name": "worst case", "cells": worst})
    ball = "" if protocol["eps"] is None else f", {protocol['norm']} eps {protocol['eps_text']}"
    return {
        "title": f"{protocol['data']}, n={protocol['n']}{ball}",
        "models": [
            result.access + ("*" if result.unreliable else ""),
            *([f"static, made on {result.static_from}"] if static else []),
        ],
        "rows": rows,
        "note": " ".join(
            [
                "95 % Wilson intervals.",
                *(f"*UNRELIABLE ({w['name']}): {w['message']}." for w in result.warnings),
                *([f"Checks not made: {', '.join(result.ignored)}."] if result.ignored else []),
                *([f"This target does not allow the checks {', '.join(result.not_made)}."] if result.not_made else []),
            ]
        ),
    }
