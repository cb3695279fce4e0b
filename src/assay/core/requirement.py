"""What a model must reach: ``pgd>=0.8, clean_drop<=0.01``; for a gate also ``robust[cat]>=0.3``, ``robust_drop<=0``."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from assay.core.errors import UsageError
from assay.core.specs import did_you_mean, split
from assay.core.units import number

# Numbers that are no attack's: which way they must be bounded, and between what they can lie at all.
ACCURACY = (">=", 0.0, 1.0)
WORDS = {
    "clean": ACCURACY,
    "robust": ACCURACY,
    "clean_drop": ("<=", -1.0, 1.0),  # below 0 where accuracy has risen
    "fol": ("<=", 0.0, math.inf),
}
DROP = "_drop"  # what is lost of the accuracy named before it, against a baseline
EVERY = "*"  # the floor of each class that occurs
_SIGNS = {">=": ">=", "<=": "<=", "≥": ">=", "≤": "<="}


@dataclass(frozen=True, slots=True)
class Clause:
    """One number and its bound; ``of`` is the class whose number it is, ``*`` stands for each of them."""

    name: str
    sign: str
    bound: float
    of: str = ""

    @property
    def drop(self) -> bool:
        """Whether it speaks of the difference to a baseline."""
        return self.name.endswith(DROP)

    @property
    def stem(self) -> str:
        """The accuracy it speaks of: of ``pgd_drop`` that is ``pgd``."""
        return self.name.removesuffix(DROP)

    @property
    def label(self) -> str:
        """The number's name with its class."""
        return f"{self.name}[{_quoted(self.of)}]" if self.of else self.name

    def holds(self, value: float) -> bool:
        return value >= self.bound if self.sign == ">=" else value <= self.bound

    def slack(self, value: float) -> float:
        """How far the value lies on the right side of the bound; below 0 on the wrong one."""
        if math.isnan(value):
            return -math.inf
        return value - self.bound if self.sign == ">=" else self.bound - value

    def __str__(self) -> str:
        return f"{self.label}{self.sign}{self.bound:g}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A clause and the number it was held against."""

    clause: Clause
    value: float

    @property
    def met(self) -> bool:
        return self.clause.holds(self.value)

    def to_json(self) -> dict[str, object]:
        value = self.value if math.isfinite(self.value) else None
        return {"clause": str(self.clause), "value": value, "met": self.met}


@dataclass(frozen=True, slots=True)
class Requirement:
    """Clauses that must all hold."""

    clauses: tuple[Clause, ...]

    @staticmethod
    def parse(text: str, *, gate: bool = False) -> "Requirement":
        """The clauses of a comma list: accuracies at least, ``clean_drop`` and ``fol`` at most.

        A ``gate`` takes floors of classes and drops of other accuracies too.

        >>> Requirement.parse("pgd>=80%, clean_drop<=0.01").check({"pgd": 0.7, "clean_drop": 0.0})[0].met
        False
        """
        clauses = tuple(_clause(part, gate=gate) for part in split(text))
        if not clauses:
            raise UsageError("the requirement is empty; write for instance 'pgd>=0.8, clean_drop<=0.01'")
        names = [clause.label for clause in clauses]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"the requirement {text!r} names {name} twice; one bound a number")
        return Requirement(clauses)

    @property
    def attacks(self) -> tuple[str, ...]:
        """The names that must be attacks, being none of the other numbers."""
        return tuple(dict.fromkeys(clause.stem for clause in self.clauses if clause.stem not in WORDS))

    def check(self, numbers: Mapping[str, float]) -> tuple[Verdict, ...]:
        """Each clause with its number."""
        return tuple(self._verdicts(numbers))

    def met(self, numbers: Mapping[str, float]) -> bool:
        return all(verdict.met for verdict in self.check(numbers))

    def slack(self, numbers: Mapping[str, float]) -> float:
        """The smallest slack of all clauses: the larger, the better, also where none holds."""
        return self.slacks(numbers)[0]

    def slacks(self, numbers: Mapping[str, float]) -> tuple[float, ...]:
        """The slacks of all clauses, smallest first: compared in this order, a tie in the worst is not the end."""
        return tuple(sorted(verdict.clause.slack(verdict.value) for verdict in self.check(numbers)))

    def _verdicts(self, numbers: Mapping[str, float]) -> Iterator[Verdict]:
        for clause in self.clauses:
            if clause.name not in numbers:
                raise UsageError(f"no number {clause.name!r} was measured; {did_you_mean(clause.name, numbers)}")
            yield Verdict(clause, numbers[clause.name])

    def __str__(self) -> str:
        return ", ".join(map(str, self.clauses))


ANYTHING = Requirement(())  # holds always


def _clause(text: str, *, gate: bool) -> Clause:
    match = re.fullmatch(r"(.*?[^\s<>=≥≤])\s*(>=|<=|≥|≤)\s*([^\s<>=≥≤].*)", text)
    if match is None:
        raise UsageError(f"cannot read {text!r} in the requirement; write NAME>=NUMBER or NAME<=NUMBER, as in pgd>=0.8")
    (name, of), sign = _of_class(match[1], text), _SIGNS[match[2]]
    if not gate and (of or (name.endswith(DROP) and name not in WORDS)):
        raise UsageError(
            f"{text!r} is for a gate only (assay check): neither floors of classes nor drops of attacks here"
        )
    bound = _bound(match[3].strip(), text)
    rule = WORDS["clean_drop"] if name.endswith(DROP) else WORDS.get(name, ACCURACY)
    right, least, most = rule
    if sign != right:
        way = "higher" if right == ">=" else "lower"
        raise UsageError(f"{text!r} points the wrong way: {way} is better for {name}; write {name}{right}{match[3]}")
    if (sign == ">=" and bound > most) or (sign == "<=" and bound < least):
        hint = f"; did you mean {name}{sign}{bound:g}%?" if rule is ACCURACY else ""
        span = f"from {least:g} up" if most == math.inf else f"between {least:g} and {most:g}"
        raise UsageError(f"{text!r} can never hold: {name} lies {span}{hint}")
    return Clause(name, sign, bound, of)


def _of_class(name: str, text: str) -> tuple[str, str]:
    """``robust[cat]`` as ``robust`` and ``cat``; the class may stand in double quotes."""
    match = re.fullmatch(r"([^\[\]]+?)\s*\[\s*(.*?)\s*\]", name, re.DOTALL)
    if match is None:
        return name, ""
    stem, of = match[1], match[2]
    of = of[1:-1] if len(of) > 1 and of[0] == of[-1] == '"' else of
    if not of or stem.endswith(DROP) or stem == "fol":
        what = "no class" if not of else "floors are of accuracies"
        raise UsageError(f"cannot read {text!r} in the requirement: {what}; write robust[cat]>=0.3 or robust[*]>=0.2")
    return stem, of


def _quoted(of: str) -> str:
    """A class's name so that it reads back: in double quotes where a comma or a bracket would part it."""
    return f'"{of}"' if set(of) & set(",[](){}") else of


def _bound(text: str, clause: str) -> float:
    if text.endswith("%"):
        return number(text.removesuffix("%"), f"the bound in {clause!r}") / 100
    return number(text, f"the bound in {clause!r}")
