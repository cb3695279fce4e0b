"""What a requirement says of a model, in words: from the verdicts as JSON and journal have them."""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.outputs.screen import plain

COLUMNS = ("clause", "measured", "95 % interval", "n", "")
MEANING = (
    "met goes by the measured number itself; undecided: the bound lies within its 95 % interval (Wilson), "
    "more --val-cases may decide"
)


def verdict_cells(row: Mapping[str, Any]) -> list[str]:
    """A clause, its number, the interval and n of that where it is an accuracy, and whether it is met."""
    measured = "–" if row["value"] is None else f"{row['value']:.4g}"
    spread = (f"{row['ci95'][0]:.4g}–{row['ci95'][1]:.4g}", f"{row['n']}") if "ci95" in row else ("–", "–")
    said = _said(met=row["met"]) + "*" * row["unreliable"] + ", undecided" * row["undecided"]
    return [plain(row["clause"]), measured, *spread, said]


def outcome(rows: Sequence[Mapping[str, Any]], *, met: bool) -> str:
    """The verdict on all clauses; undecided where intervals leave open whether all of them hold."""
    if any(row["unreliable"] for row in rows):
        return f"{_said(met=met)}, unreliable"
    lost = any(not row["met"] and not row["undecided"] for row in rows)
    return _said(met=met) + ", undecided" * (not lost and any(row["undecided"] for row in rows))


def _said(*, met: bool) -> str:
    return "met" if met else "NOT met"
