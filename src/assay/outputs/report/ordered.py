"""What the report says of a prioritisation: which orders find the failing tests early."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from assay.core.store import Store
from assay.outputs.report.charts import Series, lines, number
from assay.outputs.report.over_time import thinned
from assay.outputs.report.parts import Chart, Facts, Note, Part, Section, Table
from assay.outputs.tables import asked_line

POINTS = 200
DRAWN = 5  # orders beside the pool's own; the table has all of them


def orders_of(run: Store) -> dict[str, Any]:
    """The last orders that the run committed, {} where there are none."""
    lines_ = list(run.commits("orders"))
    if not lines_:
        return {}
    found: dict[str, Any] = json.loads(run.file(next(iter(lines_[-1].files))))
    return found


def order_verdict(told: Mapping[str, Any]) -> Note:
    """What a reader takes away."""
    if not told:
        return Note("The prioritisation has not ended; the same command goes on.", "warning")
    measured = [m for m in told["methods"] if m.get("apfd") is not None]
    if not measured:
        names = ", ".join(m["by"] for m in told["methods"] if "rows" in m)
        return Note(f"{told['n']} tests are in order by {names or 'no method'}; without labels no order is measured.")
    best = max(measured, key=lambda m: float(m["apfd"]))
    chance = told["random"]["expected"]["faults"]
    said = (
        f"Looking at the first {best['k']} of {told['labelled']} labelled tests in the order of {best['by']} meets "
        f"{best['faults']} of the {told['faults']} that the model gets wrong; at random it would be about {chance:.0f}."
    )
    rest = "" if told["complete"] else " The budget of questions ended before the work did."
    return Note(said + rest, "" if told["complete"] else "warning")


def order_sections(run: Store, told: Mapping[str, Any]) -> Iterator[Section]:
    """The parts of the page, in reading order."""
    if not told:
        return
    yield Section("orders", "How early each order meets the failing tests", tuple(_orders(told)))
    yield Section("inspected", "Failing tests met over tests looked at", tuple(_inspected(told)))
    yield Section("first", "What to look at first", tuple(_first(told)))
    notes = [Note(str(line)) for line in told.get("notes", ())]
    asked = told.get("queries")
    cost: list[Part] = [Facts({"forward pass, shared": f"{told['forward_seconds']:.2f} s"})]
    cost += [Note(asked_line(asked))] if asked else []
    yield Section("cost", "What it took", (*cost, *notes))


def _orders(told: Mapping[str, Any]) -> Iterator[Part]:
    heads = ("by", "APFD", "between bounds", f"wrong in first {told['k']}", "of those possible", "seconds")
    rows: list[tuple[str, ...]] = []
    for one in told["methods"]:
        if "rows" not in one:
            rows.append((one["by"], "n/a", "", "", "", ""))
        else:
            rows.append((one["by"], *_measures(one), f"{one['seconds']:.2f}"))
    if told["as_it_stands"] is not None:
        rows.append(("the pool as it stands", *_measures(told["as_it_stands"]), ""))
    if told["random"] is not None:
        mean, spread = told["random"]["mean"], told["random"]["spread"]
        cells = (
            "n/a" if mean[key] is None else f"{mean[key]:.{digits}f} ± {spread[key]:.{digits}f}"
            for key, digits in (("apfd", 4), ("apfd_norm", 4), ("faults", 1), ("rate", 4))
        )
        rows.append((f"random, {told['random']['drawn']} orders", *cells, ""))
    wrong = "" if told["faults"] is None else f", of which the model gets {told['faults']} wrong"
    note = (
        f"{told['pool']}: {told['n']} tests, {told['labelled']} with labels{wrong}; seed {told['seed']}. APFD: 1 where "
        "failing tests come first; between its bounds: 1 where all of them do, 0 where all come last."
    )
    yield Table(heads, tuple(rows), note=note)
    for one in told["methods"]:
        if one.get("why_not"):
            yield Note(f"{one['by']} gave no order: {one['why_not']}", "warning")


def _measures(one: Mapping[str, Any]) -> tuple[str, ...]:
    faults = one.get("faults")
    return (
        *("n/a" if one.get(key) is None else f"{one[key]:.4f}" for key in ("apfd", "apfd_norm")),
        "n/a" if faults is None else f"{faults:g}",
        "n/a" if one.get("rate") is None else f"{one['rate']:.4f}",
    )


def _inspected(told: Mapping[str, Any]) -> Iterator[Part]:
    """The share of failing tests met after so many looked at, of the best orders; older runs do not keep the rows."""
    if not told.get("wrong_rows") or "unlabelled_rows" not in told:
        return
    wrong, known = torch.zeros(told["n"], dtype=torch.bool), torch.ones(told["n"], dtype=torch.bool)
    wrong[told["wrong_rows"]], known[told["unlabelled_rows"]] = True, False
    orders = {one["by"]: one["rows"] for one in told["methods"] if one.get("apfd") is not None}
    best = sorted(orders, key=lambda by: -next(m["apfd"] for m in told["methods"] if m["by"] == by))
    found = {by: _met(orders[by], wrong, known) for by in best[:DRAWN]}
    found["the pool as it stands"] = _met(range(told["n"]), wrong, known)
    at = thinned(range(len(next(iter(found.values())))), POINTS)
    series = [Series(by, [float(i) for i in at], [line[i] for i in at]) for by, line in found.items()]
    title = "Failing tests met over tests looked at"
    some = thinned(at, 11)
    rows = tuple((number(i), *(f"{100 * line[i]:.1f} %" for line in found.values())) for i in some)
    note = "" if len(best) <= DRAWN else f"Drawn: the {DRAWN} orders with the highest APFD of {len(best)}."
    svg = lines(title, series, "tests looked at", "failing tests met", percent=True)
    yield Chart(svg, title, Table(("looked at", *found), rows), note)


def _met(order: Sequence[int], wrong: torch.Tensor, known: torch.Tensor) -> list[float]:
    """The share of all failing tests among the first 0, 1, 2 … labelled ones of an order."""
    rows = torch.tensor(list(order))
    hits = wrong[rows[known[rows]]].double().cumsum(0) / max(int(wrong.sum()), 1)
    return [0.0, *hits.tolist()]


def _first(told: Mapping[str, Any]) -> Iterator[Part]:
    rows = tuple(
        (one["by"], ", ".join(map(str, one["rows"][:20])) + (" …" if len(one["rows"]) > 20 else ""))
        for one in told["methods"]
        if "rows" in one
    )
    if rows:
        yield Table(("by", f"rows of {told['pool']}"), rows, note="All of them: state/orders-*.json of the run.")
