"""What hardening gives: the numbers of every round, and those of the models compared on the test part."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from assay.core.requirement import Requirement, Verdict
from assay.engines.evaluation import Evaluation, Share
from assay.engines.hardening_words import title_of


@dataclass(frozen=True, slots=True)
class Measured:
    """A model on one part of the data, every attack on every input.

    ``attacks`` and ``worst`` are white box, made anew on this model; ``static`` ones were made on the original model.
    """

    clean: Share
    attacks: dict[str, Share]
    worst: Share
    static: dict[str, Share]
    static_worst: Share
    warnings: list[dict[str, str]] = field(default_factory=list)
    fol: float | None = None  # median over fresh PGD examples, None where it was not asked for or is not finite

    @staticmethod
    def of(result: Evaluation, fol: float | None = None) -> "Measured":
        assert result.static_worst is not None  # both columns are always asked for
        return Measured(
            result.clean,
            {name: outcome.left for name, outcome in result.attacks.items()},
            result.worst,
            {name: outcome.left for name, outcome in result.static.items()},
            result.static_worst,
            result.warnings,
            fol if fol is not None and math.isfinite(fol) else None,
        )

    @property
    def unreliable(self) -> bool:
        return bool(self.warnings)

    @property
    def mean(self) -> float:
        """The mean accuracy over the attacks, white box; every one saw every input."""
        shares = self.attacks.values()
        return sum(share.right for share in shares) / max(sum(share.n for share in shares), 1)

    def shares(self) -> dict[str, Share]:
        """The accuracies requirements speak of; white box only."""
        return {"clean": self.clean, "robust": self.worst, **self.attacks}

    def numbers(self, original: "Measured") -> dict[str, float]:
        """What requirements speak of; white box only."""
        drop = (original.clean.right - self.clean.right) / self.clean.n  # of counts: 0.99 - 0.98 is not 0.01
        return {
            "clean_drop": drop,
            "fol": math.nan if self.fol is None else self.fol,
            **{name: share.accuracy for name, share in self.shares().items()},
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "clean": _told(self.clean),
            "attacks": {name: _told(share) for name, share in self.attacks.items()},
            "worst": _told(self.worst),
            "static": {
                "attacks": {name: _told(share) for name, share in self.static.items()},
                "worst": _told(self.static_worst),
            },
            "warnings": self.warnings,
            "unreliable": self.unreliable,
            **({} if self.fol is None else {"fol": self.fol}),
        }

    @staticmethod
    def of_json(told: Mapping[str, Any]) -> "Measured":
        static = told["static"]
        return Measured(
            _share(told["clean"]),
            {name: _share(share) for name, share in told["attacks"].items()},
            _share(told["worst"]),
            {name: _share(share) for name, share in static["attacks"].items()},
            _share(static["worst"]),
            told["warnings"],
            told.get("fol"),
        )


@dataclass(frozen=True, slots=True)
class Round:
    """One round on the validation part; round 0 is the original model.

    ``made`` says what came of it: the ``original`` as it was, the ``resistant`` model of two, or one that learned from
    the ``cases`` found. What a resistant model learned from are attacks on the original.
    ``found`` failures of the model before, of which ``selected`` were picked and ``learned`` (those of earlier rounds
    too, where the recipe keeps them) were trained on. ``fixed`` of ``checked`` failures that were never trained on,
    those of all rounds so far, are right now; of a resistant model that was given nobody knows what it was trained on,
    so it has none. ``broken`` validation inputs are wrong now and were right for the
    original model, ``mended`` ones the other way round.
    """

    number: int
    measured: Measured
    made: str = "cases"
    found: int = 0
    selected: int = 0
    learned: int = 0
    checked: int = 0
    fixed: int = 0
    broken: int = 0
    mended: int = 0
    epochs: int = 0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """All but the time, so that the same round is committed as the same bytes."""
        counts = {k: v for k, v in asdict(self).items() if k not in ("number", "measured", "seconds")}
        return {"round": self.number, **counts, "validation": self.measured.to_json()}

    @staticmethod
    def of_json(told: Mapping[str, Any], seconds: float = 0.0) -> "Round":
        counts = {k: v for k, v in told.items() if k not in ("round", "validation", "seconds")}
        counts = {"made": "cases" if told["round"] else "original"} | counts  # old runs do not tell
        return Round(told["round"], Measured.of_json(told["validation"]), **counts, seconds=seconds)


@dataclass(frozen=True, slots=True)
class Tested:
    """The one look at the test part: the original, the resistant one of two models, the control and the best model.

    ``resistant`` is None where there is one model, or where it is the best itself.
    """

    before: Measured
    after: Measured
    control: Measured | None
    looks: int
    resistant: Measured | None = None

    def columns(self) -> dict[str, Measured]:
        """The models by name, in the order they are shown."""
        between = {"resistant": self.resistant, "control": self.control}
        shown = {name: measured for name, measured in between.items() if measured is not None}
        return {"before": self.before, **shown, "after": self.after}

    def white_box(self) -> dict[str, dict[str, Share]]:
        """Each number of each model, under attacks made anew on it."""
        models = self.columns()
        rows = {"clean": {model: m.clean for model, m in models.items()}}
        rows |= {name: {model: m.attacks[name] for model, m in models.items()} for name in self.before.attacks}
        return rows | {"worst case": {model: m.worst for model, m in models.items()}}

    def static(self) -> dict[str, dict[str, Share]]:
        """Each number of each model, under attacks made on the original."""
        models = self.columns()
        rows = {name: {model: m.static[name] for model, m in models.items()} for name in self.before.static}
        return rows | {"worst case": {model: m.static_worst for model, m in models.items()}}

    def to_json(self) -> dict[str, Any]:
        told = {name: measured.to_json() for name, measured in self.columns().items()}
        return {"control": None, **told, "test_looks": self.looks}

    @staticmethod
    def of_json(told: Mapping[str, Any]) -> "Tested":
        before, after = (Measured.of_json(told[name]) for name in ("before", "after"))
        control, resistant = (
            None if told.get(name) is None else Measured.of_json(told[name]) for name in ("control", "resistant")
        )
        return Tested(before, after, control, told["test_looks"], resistant)


@dataclass(frozen=True, slots=True)
class Hardened:
    """What came of hardening; ``met`` is decided on the validation part, ``test`` is what it is worth elsewhere.

    ``model`` holds the weights of round ``best``. ``shares`` are the accuracies in ``verdicts``, by name. ``stopped``
    says why it ended, ``check`` is the command that measures the same test numbers again, where a command can name
    model and data.
    """

    run: Path
    model: Path
    requirement: Requirement
    verdicts: tuple[Verdict, ...]
    shares: Mapping[str, Share]
    met: bool
    best: int
    rounds: tuple[Round, ...]
    stopped: str
    test: Tested | None
    protocol: dict[str, Any]
    check: str
    seconds: float

    @property
    def interrupted(self) -> bool:
        return self.stopped == INTERRUPTED

    @property
    def before(self) -> Measured | None:
        return None if self.test is None else self.test.before

    @property
    def after(self) -> Measured | None:
        return None if self.test is None else self.test.after

    @property
    def control(self) -> Measured | None:
        return None if self.test is None else self.test.control

    @property
    def resistant(self) -> Measured | None:
        return None if self.test is None else self.test.resistant

    @property
    def fuzzed(self) -> int:
        """How many rounds fuzzed and learned."""
        return sum(done.made == "cases" for done in self.rounds)

    @property
    def unreliable(self) -> bool:
        """Whether a trust check spoils the numbers that decide."""
        return self.rounds[self.best].measured.unreliable

    def to_json(self) -> dict[str, Any]:
        tested: dict[str, Any] = {"before": None, "control": None, "after": None, "test_looks": 0}
        original = self.rounds[0].measured
        return {
            "met": self.met,
            "until": str(self.requirement),
            "unreliable": self.unreliable,
            "verdicts": self.verdict_rows(),
            **(tested if self.test is None else self.test.to_json()),
            "rounds": [
                r.to_json() | {"seconds": round(r.seconds, 2), "numbers": finite(r.measured.numbers(original))}
                for r in self.rounds
            ],
            "best": self.best,
            "model": str(self.model),
            "run": str(self.run),
            "stopped": self.stopped,
            "check": self.check,
            "seconds": round(self.seconds, 2),
            "protocol": self.protocol,
        }

    def verdict_rows(self) -> list[dict[str, Any]]:
        """The verdicts with their intervals, for JSON."""
        return [verdict_row(verdict, self.shares, unreliable=self.unreliable) for verdict in self.verdicts]

    def __repr__(self) -> str:
        said = ", ".join(f"{v.clause} {'met' if v.met else 'not met'} ({v.value:.3f})" for v in self.verdicts)
        return f"<round {self.best} of {len(self.rounds) - 1}: {said}; {self.model}>"


INTERRUPTED = "interrupted"


def verdict_row(verdict: Verdict, shares: Mapping[str, Share], *, unreliable: bool) -> dict[str, Any]:
    """A verdict for JSON and journal, with interval and n where its number is one of the accuracies."""
    share = shares.get(verdict.clause.name)
    spread = {} if share is None else {k: v for k, v in share.to_json().items() if k != "accuracy"}
    # an accuracy is undecided where the bound lies within its interval; other numbers have none here
    undecided = share is not None and len({verdict.clause.holds(end) for end in share.ci95}) > 1
    return verdict.to_json() | spread | {"undecided": undecided, "unreliable": unreliable}


def finite(numbers: Mapping[str, float]) -> dict[str, float]:
    """The numbers JSON can hold."""
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def numbers_tables(test: Tested, protocol: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The test numbers as tables for the report: white box and static apart; how often was looked is told later."""
    where = title_of(protocol)
    warned = [
        f"*UNRELIABLE, {name} ({w['name']}): {w['message']}." for name, m in test.columns().items() for w in m.warnings
    ]
    note = " ".join(["Every attack on every input; 95 % Wilson intervals.", *warned])

    def table(title: str, rows: dict[str, dict[str, Share]]) -> dict[str, Any]:
        cells = [{"name": name, "cells": [s.to_json() for s in row.values()]} for name, row in rows.items()]
        models = [name + ("*" if m.warnings else "") for name, m in test.columns().items()]
        return {"title": title, "models": models, "rows": cells, "note": note}

    return {
        "white-box": table(f"{where}: white box", test.white_box()),
        "static": table(f"{where}: static, examples made on the original model", test.static()),
    }


def _told(share: Share) -> dict[str, Any]:
    return {"right": share.right, **share.to_json()}


def _share(told: Mapping[str, Any]) -> Share:
    return Share(told["right"], told["n"])
