"""What hardening gives: the numbers of every round, and those of the models compared on the test part."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from assay.core.places import known_as
from assay.core.requirement import Requirement, Verdict
from assay.core.stats import newcombe
from assay.engines.evaluation import Share
from assay.engines.measured import Measured

TRAINED = "trained"  # how the round of a recipe is called that finds no cases
CLOCKS = ("seconds", "training", "measuring")  # times of a round, which are not committed
OF_CASES = ("found", "selected", "learned", "checked", "fixed")  # counts that mean nothing there
BETWEEN = ("resistant", "noise", "control")  # the models between the original and the best one, as they are shown


@dataclass(frozen=True, slots=True)
class Round:
    """One round on the validation part; round 0 is the original model.

    ``made`` says what came of it: the ``original`` as it was, the ``resistant`` model of two, one that learned from
    the ``cases`` found, or what a recipe that finds none has ``trained``. What a resistant model learned from are
    attacks on the original.
    ``found`` failures of the model before, of which ``selected`` were picked and ``learned`` (those of earlier rounds
    too, where the recipe keeps them) were trained on. ``fixed`` of ``checked`` failures that were never trained on,
    those of all rounds so far, are right now; of a resistant model that was given nobody knows what it was trained on,
    so it has none. Where the recipe keeps every case, failing or not, ``failing`` says how many of those found fail and
    ``selected_failing`` how many of those selected; elsewhere all do. ``broken`` validation inputs are wrong now and
    were right for the original model, ``mended`` ones the other way round. ``notes`` is what the trainer says of its
    work, and the selector (``selection``).
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
    training: float = 0.0  # of these, those of the training's epochs
    measuring: float = 0.0  # and those in which the model was measured, not made
    notes: Mapping[str, Any] = field(default_factory=dict)
    failing: int | None = None
    selected_failing: int | None = None

    def to_json(self) -> dict[str, Any]:
        """All but the time, so that the same round is committed as the same bytes."""
        apart = ("number", "measured", *CLOCKS, "notes", *(OF_CASES if self.made == TRAINED else ()))
        counts = {k: v for k, v in asdict(self).items() if k not in apart and v is not None}
        notes = {"notes": dict(self.notes)} if self.notes else {}
        return {"round": self.number, **counts, **notes, "validation": self.measured.to_json()}

    @staticmethod
    def of_json(told: Mapping[str, Any], **clocks: Any) -> "Round":
        counts = {k: v for k, v in told.items() if k not in ("round", "validation", "seconds")}
        counts = {"made": "cases" if told["round"] else "original"} | counts  # old runs do not tell
        return Round(told["round"], Measured.of_json(told["validation"]), **counts, **clocks)


@dataclass(frozen=True, slots=True)
class Ablated:
    """The numbers, on the validation part, of a model trained without one part of its recipe."""

    part: str
    trainer: str
    epochs: int
    measured: Measured

    def to_json(self) -> dict[str, Any]:
        told = {"part": self.part, "trainer": self.trainer, "epochs": self.epochs}
        return told | {"validation": self.measured.to_json()}

    def missed(self, whole: Measured) -> tuple[float, float, float]:
        """What the part adds to the worst case, with the ends of the 95 % interval of shares counted apart."""
        now, without = whole.worst, self.measured.worst
        return (now.accuracy - without.accuracy, *newcombe(now.right, now.n, without.right, without.n))

    @staticmethod
    def of_json(told: Mapping[str, Any]) -> "Ablated":
        return Ablated(told["part"], told["trainer"], told["epochs"], Measured.of_json(told["validation"]))


@dataclass(frozen=True, slots=True)
class Tested:
    """The one look at the test part: the original, the best model, and those between them that tell what it is worth.

    ``resistant`` is None where there is one model, or where it is the best itself; ``noise``, the original with random
    noise on the weights that training changed, where the recipe does more than train. Of a recipe that only trains,
    ``after`` is what it trained, better or not.
    """

    before: Measured
    after: Measured
    control: Measured | None
    looks: int
    resistant: Measured | None = None
    noise: Measured | None = None

    def columns(self) -> dict[str, Measured]:
        """The models by name, in the order they are shown."""
        between = {name: measured for name in BETWEEN if (measured := getattr(self, name)) is not None}
        return {"before": self.before, **between, "after": self.after}

    @property
    def over_noise(self) -> tuple[float, float, float] | None:
        """What was trained less noise on the same weights, static worst cases, with the ends of the 95 % interval.

        Both are of the same inputs, but only the counts are kept: the interval is that of shares counted apart.
        """
        if self.noise is None:
            return None
        after, noise = self.after.static_worst, self.noise.static_worst
        return (after.accuracy - noise.accuracy, *newcombe(after.right, after.n, noise.right, noise.n))

    @property
    def noise_does(self) -> bool:
        """Whether noise on the weights is at least as good, static, as what was trained."""
        return self.over_noise is not None and self.over_noise[0] <= 0

    def noise_json(self) -> dict[str, Any]:
        """What is told of the noise besides its numbers; nothing where there is none."""
        if self.over_noise is None:
            return {}
        difference, *ends = (round(v, 6) for v in self.over_noise)
        return {
            "noise_does_as_well": self.noise_does,
            "static_over_noise": {"difference": difference, "ci95": ends},
        }

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
        between = {name: Measured.of_json(told[name]) for name in BETWEEN if told.get(name) is not None}
        return Tested(before, after, between.pop("control", None), told["test_looks"], **between)


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
    passes: int = 0  # inputs that nets of this process answered and took gradients of; measuring does not count
    alone: bool = False  # the recipe found no cases, it trained
    ablations: tuple[Ablated, ...] = ()

    @property
    def compared(self) -> int:
        """The round that ``after`` is."""
        return compared([done.made for done in self.rounds], self.best)

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
    def noise(self) -> Measured | None:
        return None if self.test is None else self.test.noise

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
            "met": self.met if self.requirement.clauses else None,
            "until": str(self.requirement),
            "unreliable": self.unreliable,
            "verdicts": self.verdict_rows(),
            **(tested if self.test is None else self.test.to_json()),
            **({} if self.test is None else self.test.noise_json()),
            "rounds": [
                r.to_json()
                | {"seconds": round(r.seconds, 2), "training_seconds": round(r.training, 2)}
                | {"measuring_seconds": round(r.measuring, 2)}
                | {"numbers": finite(r.measured.numbers(original))}
                for r in self.rounds
            ],
            **({"ablations": [done.to_json() for done in self.ablations]} if self.ablations else {}),
            "best": self.best,
            **({"compared": self.compared} if self.alone else {}),
            "model": known_as(self.model),
            "run": known_as(self.run),
            "stopped": self.stopped,
            "check": self.check,
            "seconds": round(self.seconds, 2),
            "passes": self.passes,
            "protocol": self.protocol,
        }

    def verdict_rows(self) -> list[dict[str, Any]]:
        """The verdicts with their intervals, for JSON."""
        return [verdict_row(verdict, self.shares, unreliable=self.unreliable) for verdict in self.verdicts]

    def __repr__(self) -> str:
        said = ", ".join(f"{v.clause} {'met' if v.met else 'not met'} ({v.value:.3f})" for v in self.verdicts)
        return f"<round {self.best} of {len(self.rounds) - 1}: {said}; {self.model}>"


INTERRUPTED = "interrupted"
ALL_DONE = "all rounds done"


def compared(made: Sequence[str], best: int) -> int:
    """The round that is compared with the original on the test part: the best one, or the one a recipe trained that
    does nothing else; what that training is worth must be seen also where the original is better.
    """
    return made.index(TRAINED) if TRAINED in made else best


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
