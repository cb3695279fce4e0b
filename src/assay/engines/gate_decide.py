"""How a gate decides: by the interval of a number, not by the number alone.

A clause is met where the whole interval lies on the right side of its bound, not met where it lies on the wrong one,
and undecided between: then another sample of the same inputs might say the opposite.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from assay.core.errors import UsageError
from assay.core.requirement import Clause
from assay.core.specs import did_you_mean
from assay.core.stats import newcombe, share_needed, wilson
from assay.engines.evaluation import Share
from assay.engines.gate_result import GateRow, Status
from assay.engines.paired import Paired

HOW = ("interval", "point")


@dataclass(frozen=True, slots=True)
class Rules:
    """``level`` is that of the intervals that decide; with ``point`` the bare number does."""

    level: float = 0.95
    point: bool = False

    @staticmethod
    def of(confidence: float, decide: str) -> "Rules":
        if not 0.5 <= confidence < 1:
            raise UsageError(f"confidence is from 0.5 up and below 1, such as 0.95, got {confidence:g}")
        if decide not in HOW:
            raise UsageError(f"decide goes by interval or by point, got {decide!r}; {did_you_mean(decide, HOW)}")
        return Rules(confidence, decide == "point")

    def status(self, clause: Clause, value: float, met_by: tuple[float, float], lost_by: tuple[float, float]) -> Status:
        """``met_by`` and ``lost_by`` are the intervals that must lie on the one side, and on the other."""
        if self.point:
            return "met" if clause.holds(value) else "not met"
        if all(map(clause.holds, met_by)):
            return "met"
        return "undecided" if any(map(clause.holds, lost_by)) else "not met"


def share_row(clause: Clause, share: Share, rules: Rules, *, of: str = "", among: int = 1) -> GateRow:
    """A clause on an accuracy. ``of`` is the class, ``among`` how many classes have a floor by the same clause.

    That every floor holds is claimed where each does at the level asked for, which needs no correction: all pass while
    one is too low at most as often as that one passes. That one is broken is claimed at a level that makes up for how
    many there are (Bonferroni), or many classes would raise the alarm by chance.
    """
    if not share.n:
        raise UsageError(f"{clause} has nothing to go by: no input of class {of!r}")
    name = replace(clause, of=of) if of else clause
    interval = wilson(share.right, share.n, rules.level)
    corrected = 1 - (1 - rules.level) / among
    strict = wilson(share.right, share.n, corrected)
    status = rules.status(clause, share.accuracy, interval, strict)
    level, told_by = (rules.level, interval) if clause.holds(share.accuracy) else (corrected, strict)
    needed = share_needed(share.accuracy, clause.bound, level) if status == "undecided" else None
    what = f"inputs of class {of}" if of else "inputs"
    told = (
        f"{name.label} is {_percent(share.accuracy)} of {share.n} {what}{_spread(told_by, replace(rules, level=level))}"
    )
    row = GateRow(name.label, str(name), status, "", share.accuracy, share.ci95, share.n, needed)
    return replace(row, message=f"{told}; {_required(clause)}{_rest(row, clause, what)}")


def paired_row(clause: Clause, pair: Paired, rules: Rules, baseline: str) -> GateRow:
    """A clause on a drop, both models measured on the same inputs."""
    status = rules.status(clause, pair.difference, pair.interval, pair.interval)
    told = (
        f"{clause.stem} drops by {_points(pair.difference)} over the same {pair.n} inputs"
        f"{_spread(pair.interval, rules)} against {baseline}: {pair.b} now wrong, {pair.c} now right "
        f"(McNemar p = {pair.p:.2g})"
    )
    needed = pair.needed if status == "undecided" else None
    row = GateRow(clause.label, str(clause), status, "", pair.difference, pair.ci95, pair.n, needed)
    return replace(row, message=f"{told}; {_required(clause)}{_rest(row, clause, 'inputs')}")


def same_row(clause: Clause, n: int, baseline: str) -> GateRow:
    """A clause on a drop against the very same model: nothing is lost on any input, however few were looked at."""
    met = clause.holds(0.0)
    told = f"{clause.stem} drops by 0 points: {baseline} is the same net with the same weights; {_required(clause)}"
    return GateRow(clause.label, str(clause), "met" if met else "not met", told, 0.0, (0.0, 0.0), n)


def apart_row(clause: Clause, before: Share, after: Share, rules: Rules) -> GateRow:
    """A clause on a drop of which only the counts are kept: the interval is that of shares counted apart."""
    value = before.right / before.n - after.right / after.n
    counts = (before.right, before.n, after.right, after.n)
    interval = newcombe(*counts, rules.level)
    status = rules.status(clause, value, interval, interval)
    spread = f"{_spread(interval, rules)} against the original"
    told = f"{clause.stem} drops by {_points(value)} over {after.n} inputs{spread}"
    row = GateRow(clause.label, str(clause), status, "", value, newcombe(*counts), after.n)
    return replace(row, message=f"{told}; {_required(clause)}{_rest(row, clause, 'inputs')}")


def bare_row(clause: Clause, value: float | None, n: int | None) -> GateRow:
    """A clause on a number without an interval, such as the median FOL."""
    met = value is not None and clause.holds(value)
    told = "is not finite" if value is None else f"is {value:.4g}"
    message = f"{clause.label} {told}; at most {clause.bound:g} is required"
    return GateRow(clause.label, str(clause), "met" if met else "not met", message, value, None, n)


def count_row(name: str, found: int, allowed: int, n: int | None, message: str) -> GateRow:
    """So many of something that must not be: each one counts."""
    status: Status = "met" if found <= allowed else "not met"
    return GateRow(name, f"{name}<={allowed}", status, message, float(found), None, n)


def unreliable(row: GateRow, warnings: tuple[Mapping[str, Any], ...]) -> GateRow:
    """The row where a trust check fired: what is not met stays so, all else is not known."""
    if not warnings or row.status == "not met":
        return row
    names = ", ".join(dict.fromkeys(str(warning["name"]) for warning in warnings))
    return replace(row, status="unreliable", message=f"{row.message}; unreliable, a trust check fired: {names}")


def _rest(row: GateRow, clause: Clause, what: str) -> str:
    if row.status != "undecided":
        return ""
    if row.needed is None:
        return f"; undecided: {'it lies on the bound' if row.value == clause.bound else 'the bound lies within'}"
    return f"; about {row.needed} {what} would decide, if that is the true value"


def _required(clause: Clause) -> str:
    if clause.drop:
        return f"at most {_points(clause.bound)} is required"
    return f"at least {_percent(clause.bound)} is required"


def _spread(interval: tuple[float, float], rules: Rules) -> str:
    low, high = (f"{100 * end:.1f}" for end in interval)
    return f" ({100 * rules.level:.6g} % interval {low} to {high} %)"


def _percent(value: float) -> str:
    return f"{_short(value)} %"


def _points(value: float) -> str:
    return f"{_short(value)} points"


def _short(value: float) -> str:
    """In hundredths with at most two places: ``2.78``, ``40``."""
    return f"{100 * value:.2f}".rstrip("0").rstrip(".")
