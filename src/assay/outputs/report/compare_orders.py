"""Prioritisations beside each other: orders of the same pool of the same model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.outputs.report.comparing import Compared, Run, listed, set_apart, side_by_side, unlike
from assay.outputs.report.ordered import orders_of
from assay.outputs.report.parts import Note, Part, Section, Table


@dataclass(frozen=True, slots=True)
class One:
    """A prioritisation under its name."""

    name: str
    told: Mapping[str, Any]
    data: Any

    @property
    def conditions(self) -> dict[str, Any]:
        keys = {"model hash": "model_fingerprint", "n": "n", "labelled": "labelled", "k": "k"}
        return {"data hash": self.data, **{word: self.told.get(key) for word, key in keys.items()}}


def compared_orders(runs: Sequence[Run]) -> Compared:
    """What prioritisations say beside each other."""
    every = [One(run.name, orders_of(run.store), _data(run)) for run in runs]
    done = [one for one in every if one.told]
    told = Compared()
    parts: list[Part] = []
    if done:
        rows: dict[str, list[Any]] = {key: [one.conditions[key] for one in done] for key in done[0].conditions}
        parts.append(side_by_side([one.name for one in done], rows))
    parts += [Note(f"{one.name} has not ended and is not compared.", "warning") for one in every if not one.told]
    shown = Section("pools", "Pools side by side", tuple(parts))
    groups = set_apart(told, done, lambda one, other: unlike(one.conditions, other.conditions), shown, "measured")
    for place, group in enumerate((group for group in groups if len(group) > 1), 1):
        told.sections.append(Section(f"orders-{place}", f"Orders, {listed([o.name for o in group])}", (_table(group),)))
        told.groups.append(_json(group))
    told.verdict = _sentence(told.groups)
    if told.unlike:
        told.verdict += " Orders of unlike pools or models are not ranked."
    told.tone = "warning" if told.unlike or len(done) < len(every) else ""
    return told


def _data(run: Run) -> Any:
    begin = run.store.lines[0].meta.get("identity", {}) if run.store.lines else {}
    return begin.get("data", {}).get("fingerprint")


def _measured(group: Sequence[One]) -> list[tuple[str, Mapping[str, Any]]]:
    """Every order that was measured, the one with the highest APFD first."""
    found = [(one.name, m) for one in group for m in one.told["methods"] if m.get("apfd") is not None]
    return sorted(found, key=lambda pair: -float(pair[1]["apfd"]))


def _table(group: Sequence[One]) -> Table:
    rows = tuple(
        (f"{name}: {m['by']}", f"{m['apfd']:.4f}", f"{m['faults']:g}", f"{m['rate']:.4f}", f"{m['seconds']:.2f}")
        for name, m in _measured(group)
    )
    k = group[0].told["k"]
    note = "Without intervals: each order is of this one pool. Random orders spread by "
    spread = (group[0].told.get("random") or {}).get("spread", {}).get("apfd")
    note += "n/a." if spread is None else f"{spread:.4f} in APFD: smaller differences say little."
    return Table(("run: order", "APFD", f"wrong in first {k}", "of those possible", "seconds"), rows, note=note)


def _json(group: Sequence[One]) -> dict[str, Any]:
    orders = [{"run": n, **{k: v for k, v in m.items() if k != "rows"}} for n, m in _measured(group)]
    return {
        "kind": "prioritise",
        "runs": [one.name for one in group],
        "conditions": group[0].conditions,
        "orders": orders,
    }


def _sentence(groups: Sequence[Mapping[str, Any]]) -> str:
    said = []
    for group in groups:
        if group["orders"]:
            best = group["orders"][0]
            said.append(
                f"Of {listed(group['runs'])}, {best['by']} of {best['run']} has the highest APFD, {best['apfd']:.4f}."
            )
        else:
            said.append(f"No order of {listed(group['runs'])} is measured.")
    return " ".join(said) or "No two prioritisations that have ended can be compared."
