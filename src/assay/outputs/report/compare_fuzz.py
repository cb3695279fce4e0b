"""Fuzzing runs beside each other: counts only under the same bounds, ranks only for the same budget."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from assay.core.plot import read_plot
from assay.core.stats import newcombe
from assay.core.units import clock
from assay.engines.evaluation import Share
from assay.engines.found import Found, summary
from assay.engines.stored import identity_of, keeps_all
from assay.outputs.report.charts import Series, lines, number
from assay.outputs.report.comparing import (
    Compared,
    Run,
    listed,
    pairwise,
    ranks,
    set_apart,
    side_by_side,
    unlike,
    verdicts,
)
from assay.outputs.report.over_time import POINTS, thinned
from assay.outputs.report.parts import Cell, Chart, Note, Part, Section, Table
from assay.outputs.tables import percent

ALIKE = 0.1  # budgets of which one is larger by no more than this share are alike
_BALL = re.compile(r"\b(eps|norm)=([^,)]+)")


@dataclass(frozen=True, slots=True)
class One:
    """A fuzzing run under its name: what was found, under which bounds."""

    name: str
    found: Found
    begin: Mapping[str, Any]
    every: bool

    @property
    def recipe(self) -> str:
        return str(self.begin.get("recipe", {}).get("name", "?"))

    @property
    def model(self) -> str:
        return str(self.begin.get("target", {}).get("fingerprint", "?"))

    @property
    def broken(self) -> Share:
        """The seeds that broke, of those that were worked on."""
        worked = min(self.found.seeds, int(self.found.seeding.get("seeds", self.found.seeds)))
        return Share(self.found.broken, max(self.found.broken, worked))

    @property
    def bounds(self) -> dict[str, Any]:
        """What decides which cases count: two runs that differ in it looked for different things."""
        recipe = self.begin.get("recipe", {})
        beside = self.begin.get("target", {}).get("siblings", ())
        ball = ", ".join(f"{name} {value}" for name, value in sorted(_BALL.findall(str(recipe.get("mutate", "")))))
        return {
            "data hash": self.begin.get("data", {}).get("fingerprint"),
            "ball of the mutator": ball or "none",
            "valid": ", ".join(map(str, recipe.get("valid", ()))) or "everything",
            "oracle": recipe.get("oracle"),
            "seeds": recipe.get("seeds"),
            **({"models beside it (hash)": ", ".join(map(str, beside))} if beside else {}),
        }


def compared_fuzz(runs: Sequence[Run]) -> Compared:
    """What fuzzing runs say beside each other."""
    every = [One(run.name, summary(run.store), identity_of(run.store), keeps_all(run.store)) for run in runs]
    told = Compared()
    keys = dict.fromkeys(key for one in every for key in one.bounds)
    rows: dict[str, list[Any]] = {key: [one.bounds.get(key) for one in every] for key in keys}
    budget: dict[str, list[Any]] = {
        "model hash": [one.model for one in every],
        "recipe": [one.recipe for one in every],
        "cases tried": [one.found.cases for one in every],
        "time": [clock(one.found.seconds) for one in every],
    }
    table = side_by_side([one.name for one in every], rows | budget)
    shown = Section("bounds", "Bounds and budgets side by side", (table,))
    groups = set_apart(told, every, lambda one, other: unlike(one.bounds, other.bounds), shown, "fuzzed")
    sentences = verdicts(groups, lambda group, suffix: _group(told, group, suffix))
    told.sections.append(Section("broken-over-time", "How they went", tuple(_over_time(runs))))
    if told.unlike:
        sentences.append(
            "Fuzzing runs under unlike bounds are not ranked: a count under other bounds counts other things."
        )
        told.tone = "warning"
    told.verdict = " ".join(sentences)
    return told


def _why_not(group: Sequence[One]) -> str:
    """Why runs of one group have no rank, "" where they have."""
    shaky = [one.name for one in group if (one.found.stability or {}).get("warnings")]
    if shaky:
        return f"UNRELIABLE, the model of {listed(shaky)} does not answer the same input the same"
    if any(one.every for one in group):
        return "a run keeps every case, so that its counts are of a pool"
    if len({one.model for one in group}) > 1 and len({one.recipe for one in group}) > 1:
        return "both the models and the recipes differ, and counts say nothing of either alone"
    for one, other in combinations(group, 2):
        pairs = ((one.found.cases, other.found.cases), (one.found.seconds, other.found.seconds))
        if not any(max(a, b) <= (1 + ALIKE) * min(a, b) for a, b in pairs):
            return (
                f"{one.name} and {other.name} had unlike budgets ({one.found.cases} and {other.found.cases} cases, "
                f"{clock(one.found.seconds)} and {clock(other.found.seconds)})"
            )
    return ""


def _group(told: Compared, group: Sequence[One], suffix: str) -> str:
    why = _why_not(group)
    place: dict[str, int] = {}
    if not why:
        shares = {one.name: one.broken for one in group}
        level = pairwise(len(group))
        place = ranks([one.name for one in group], lambda one, other: _more(shares[one], shares[other], level))
    parts: list[Part] = [_table(group, place)]
    parts += [Note(f"Not ranked: {why}.", "warning")] if why else []
    names = [one.name for one in group]
    told.sections.append(Section(f"found{suffix}", f"Found, {listed(names)}", tuple(parts)))
    told.groups.append(_json(group, place, why))
    if why:
        told.tone = "warning"
        return f"{listed(names)} are not ranked: {why}."
    first = [name for name in names if place[name] == 1]
    if len(first) == len(names):
        return f"{listed(names)} are not told apart by the share of seeds they broke."
    return f"Under the same bounds none surely breaks a larger share of seeds than {listed(first)}."


def _more(one: Share, other: Share, level: float) -> bool:
    """Whether the first broke a larger share of its seeds, beyond the interval of the difference."""
    return newcombe(one.right, one.n, other.right, other.n, level)[0] > 0


def _table(group: Sequence[One], place: Mapping[str, int]) -> Table:
    rows: list[tuple[Cell | str, ...]] = []
    for one in group:
        found = one.found
        hint = f"recipe {one.recipe}; {'; '.join(f'{key} {value}' for key, value in one.bounds.items())}"
        rate = 1000 * found.distinct / found.cases if found.cases else 0.0
        rows.append(
            (
                one.name,
                Cell(percent(one.broken), f"n={one.broken.n}; 95 % Wilson interval; {hint}"),
                str(found.failures),
                str(found.distinct),
                f"{rate:.2f}",
                str(found.cases),
                clock(found.seconds),
                str(place.get(one.name, "–")),
            )
        )
    heads = ("run", "seeds broken", "failures", "distinct", "distinct in 1 000 cases", "cases tried", "time", "rank")
    note = (
        "Rank by the share of seeds broken: 1 and how many surely broke more, so that runs which cannot be told apart "
        "share one. Failures are counted again and again from one seed: no measure by themselves."
    )
    return Table(heads, tuple(rows), note=note)


def _over_time(runs: Sequence[Run]) -> list[Part]:
    series, rows = [], []
    for run in runs:
        plot = thinned(read_plot(run.store.path), POINTS)
        if len(plot) > 1:
            line = Series(run.name, [row["seconds"] for row in plot], [float(row["broken"]) for row in plot])
            series.append(line)
            last = plot[-1]
            rows.append((run.name, number(last["seconds"]), str(last["cases"]), str(last["broken"])))
    if not series:
        return []
    title = "Seeds broken over time"
    table = Table(("run", "seconds", "cases tried", "seeds broken at the end"), tuple(rows))
    return [Chart(lines(title, series, "seconds", "seeds broken"), title, table, "Of runs that keep plot.csv.")]


def _json(group: Sequence[One], place: Mapping[str, int], why: str) -> dict[str, Any]:
    return {
        "kind": "fuzz",
        "runs": [one.name for one in group],
        "bounds": group[0].bounds,
        "not_ranked": why or None,
        "numbers": {
            one.name: {
                "recipe": one.recipe,
                "model_fingerprint": one.model,
                "seeds_broken": one.broken.to_json() | {"broken": one.broken.right},
                "failures": one.found.failures,
                "distinct": one.found.distinct,
                "cases": one.found.cases,
                "seconds": round(one.found.seconds, 3),
                "rank": place.get(one.name),
            }
            for one in group
        },
    }
