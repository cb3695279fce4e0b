"""A gate as tables and lines for people."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from assay.engines.gate_result import Gate, GateRow
from assay.outputs.screen import plain

FLOORS = 20  # rows of classes that are shown one by one; of more, those that are met are told in one line
_STYLES = {"met": "green", "not met": "red", "undecided": "yellow", "unreliable": "yellow"}


def gate_table(gate: Gate) -> Table:
    """A row a clause."""
    told = gate.protocol
    ball = "" if not told.get("eps") else f", {told.get('norm')} eps={told['eps']:g}"
    against = "" if gate.baseline is None else f" against {gate.baseline}"
    table = Table(
        title=plain(f"{gate.subject}{against}, {told.get('data', '')}{ball}".rstrip(", ")),
        caption=_how(told),
    )
    for column in ("required", "measured", "95 % interval", "n", ""):
        table.add_column(column, justify="left" if column in ("required", "") else "right")
    for row in _shown(gate):
        spread = "" if row.ci95 is None else f"{_number(row, row.ci95[0])} to {_number(row, row.ci95[1])}"
        value = "–" if row.value is None else _number(row, row.value)
        count = "" if row.n is None else str(row.n)
        table.add_row(plain(row.clause), value, spread, count, row.status, style=_STYLES[row.status])
    return table


def compared_table(gate: Gate) -> Table:
    """Both models on the same inputs, whatever was required."""
    table = Table(
        title=plain(f"over the same inputs, against {gate.baseline}"), caption="drop: the older accuracy less the newer"
    )
    for column in ("", "drop", "95 % interval", "now wrong", "now right", "n", "p"):
        table.add_column(column, justify="right" if column else "left")
    for name, told in gate.compared.items():
        low, high = told["ci95"]
        drop, spread = f"{100 * told['difference']:.2f} %", f"{100 * low:.2f} to {100 * high:.2f} %"
        counts = (str(told[key]) for key in ("b", "c", "n"))
        table.add_row(plain(name), drop, spread, *counts, f"{told['p']:.2g}")
    return table


def gate_lines(gate: Gate) -> Iterator[str]:
    """What the table does not say: why a row does not pass, what is spoiled, and the verdict last."""
    yield from (f"{row.status}: {row.message}" for row in gate.rows if not row.met)
    if len(_shown(gate)) < len(gate.rows):
        yield f"{len(gate.rows) - len(_shown(gate))} floors of classes are met and not shown; --json has them"
    yield from (f"UNRELIABLE ({warning['name']}): {warning['message']}" for warning in gate.warnings)
    if ignored := gate.protocol.get("checks_ignored"):
        yield f"trust checks ignored, as was asked: {', '.join(ignored)}"
    if unmade := gate.protocol.get("checks_not_made"):
        yield f"trust checks that could not be made: {', '.join(unmade)}"
    if not gate.complete:
        yield f"the budget ended after {gate.protocol.get('n')} inputs; the numbers are of those"
    if gate.run is not None:
        yield f"examples: assay report {gate.run}"
    elif gate.failed and not gate.met:
        yield "what fails is not kept: with --save NAME it is, and assay report NAME shows it"
    if gate.fuzzed is not None and any(row.name == "regressions" and row.value for row in gate.rows):
        yield f"regressions found: assay report {gate.fuzzed}"
    yield verdict(gate)


def verdict(gate: Gate) -> str:
    """One sentence.

    >>> verdict(Gate("m", "clean>=0.5", (GateRow("clean", "clean>=0.5", "undecided", ""),)))
    'the gate is NOT met: 1 of 1 undecided'
    """
    if gate.met:
        return f"the gate is met: all {len(gate.rows)} hold" if len(gate.rows) > 1 else "the gate is met"
    statuses = [row.status for row in gate.rows if not row.met]
    told = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
    first, _, rest = told.partition(" ")
    return f"the gate is NOT met: {first} of {len(gate.rows)} {rest}"


def _how(told: Mapping[str, Any]) -> str:
    if told["decide"] == "point":
        return "the bare number decides; 95 % intervals are shown"
    level = f"{100 * told['confidence']:g} %"
    return "95 % intervals decide" if level == "95 %" else f"{level} intervals decide; 95 % ones are shown"


def _shown(gate: Gate) -> list[GateRow]:
    floors = [row for row in gate.rows if row.name.endswith("]")]
    if len(floors) <= FLOORS:
        return list(gate.rows)
    return [row for row in gate.rows if not row.met or not row.name.endswith("]")]


def _number(row: GateRow, value: float) -> str:
    """Shares in percent; counts and what has no interval as they are."""
    return f"{value:.4g}" if row.ci95 is None else f"{100 * value:.2f} %"
