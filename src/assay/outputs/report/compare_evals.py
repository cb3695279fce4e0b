"""Saved evaluations beside each other, over the same inputs where their protocols agree."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from assay.engines.paired import Paired, paired
from assay.engines.protocol import differences
from assay.engines.saved import Saved, saved_evaluation
from assay.outputs.report.charts import Bar, Series, bars, lines, number
from assay.outputs.report.classes import accuracy_cell
from assay.outputs.report.comparing import (
    Compared,
    Run,
    listed,
    pairwise,
    points,
    ranks,
    set_apart,
    side_by_side,
    verdicts,
)
from assay.outputs.report.evaluated import hint_of, warning_note
from assay.outputs.report.parts import Cell, Chart, Note, Part, Section, Table

PAIRED = 6  # runs up to which every pair is shown; with more, each against the first: ranks and JSON know all
SURE = 0.05  # how often at most, over all pairs together, two that are alike are told apart


@dataclass(frozen=True, slots=True)
class One:
    """An evaluation under its name."""

    name: str
    saved: Saved

    @property
    def unreliable(self) -> bool:
        return bool(self.saved.told.get("unreliable"))

    @property
    def star(self) -> str:
        return "*" if self.unreliable else ""

    @property
    def label(self) -> str:
        return f"{self.name}{self.star}"


def compared_evals(runs: Sequence[Run]) -> Compared:
    """What saved evaluations say beside each other."""
    every = [One(run.name, saved) for run in runs if (saved := saved_evaluation(run.store)) is not None]
    done = [one for one in every if one.saved.complete]
    told = Compared()
    protocol: list[Part] = [_protocols(done)] if done else []
    protocol += [Note(f"{one.name} has not ended and is not compared.", "warning") for one in every if one not in done]
    shown = Section("protocols", "Protocols side by side", tuple(protocol))
    groups = set_apart(told, done, _differ, shown, "evaluated")
    sentences = verdicts(groups, lambda group, suffix: _group(told, group, suffix))
    if told.unlike:
        sentences.append("Evaluations of unlike protocols are not ranked.")
        told.tone = "warning"
    told.tone = "warning" if len(done) < len(every) or any(one.unreliable for one in done) else told.tone
    told.verdict = " ".join(sentences) or "No two evaluations that have ended can be compared."
    return told


def _differ(one: One, other: One) -> list[str]:
    """In what two evaluations differ that keeps their numbers apart."""
    unlike = differences(one.saved.protocol, other.saved.protocol)
    same = one.saved.y.shape == other.saved.y.shape and bool((one.saved.y == other.saved.y).all())
    return unlike if same or unlike else ["labels or their order"]


def _protocols(done: Sequence[One]) -> Table:
    protocols = [one.saved.protocol for one in done]
    rows: dict[str, list[Any]] = {
        "norm": [p.get("norm") for p in protocols],
        "eps": [p.get("eps_text") for p in protocols],
        "suite": [", ".join(p.get("attacks", {})) for p in protocols],
        "order": ["cascade" if p.get("cascade") else "each attack on every input" for p in protocols],
        "data hash": [p.get("data_fingerprint") for p in protocols],
        "n": [p.get("n") for p in protocols],
        "seed": [p.get("seed") for p in protocols],
    }
    suites = [", ".join(p.get("attacks", {}).values()) for p in protocols]
    rows |= {"parameters": suites} if len(set(suites)) > 1 else {}
    table = side_by_side([one.name for one in done], rows)
    more: dict[str, list[Any]] = {
        "data": [p.get("data") for p in protocols],
        "access": [one.saved.told.get("access") for one in done],
        "checks ignored": [", ".join(one.saved.told.get("ignored_checks", ())) or "none" for one in done],
        "torch": [p.get("torch") for p in protocols],
    }
    # These may differ between numbers that are compared: the same data may have two names.
    free = tuple((what, *("–" if v is None else str(v) for v in values)) for what, values in more.items())
    note = "Numbers stand beside each other only where all down to the seed agree."
    return Table(table.columns, (*table.rows, *free), note=note)


def _group(told: Compared, group: Sequence[One], suffix: str) -> str:
    """The comparison of evaluations under one protocol; a sentence that sums it up."""
    level = pairwise(len(group), SURE)
    tests = {
        what: {(a.name, b.name): paired(rows[a.name], rows[b.name], level=level) for a, b in combinations(group, 2)}
        for what, rows in (
            ("worst case", {one.name: one.saved.standing() for one in group}),
            ("clean", {one.name: one.saved.right for one in group}),
        )
    }
    sound = [one.name for one in group if not one.unreliable]
    worst = tests["worst case"]
    place = ranks(sound, lambda one, other: _surely(worst, one, other))
    hint = hint_of(group[0].saved.protocol)
    parts: list[Part] = [_table(group, place, hint), _chart(group)]
    parts += [warning_note(w, one.name) for one in group for w in one.saved.told["warnings"]]
    title = f"Accuracy, {listed([one.name for one in group])}"
    told.sections.append(Section(f"numbers{suffix}", title, tuple(parts)))
    told.sections.append(Section(f"paired{suffix}", "Input by input", (_paired_table(group, tests),)))
    if len(group[0].saved.told.get("curve", ())) > 1:
        told.sections.append(Section(f"curves{suffix}", "Accuracy over the size of the change", (_curves(group),)))
    told.groups.append(_json(group, place, tests))
    return _sentence(group, place, worst)


def _surely(tests: dict[tuple[str, str], Paired], one: str, other: str) -> bool:
    """Whether the first is better beyond the interval of the difference, which makes up for how many pairs there are.

    Every pair must have been tested, or a run would rank first for want of a test.
    """
    if (one, other) in tests:
        return tests[one, other].interval[0] > 0
    return tests[other, one].interval[1] < 0


def _table(group: Sequence[One], place: dict[str, int], hint: str) -> Table:
    shares = {one.name: {"clean": one.saved.told["clean"]} for one in group}
    left = "left after " if group[0].saved.protocol["cascade"] else ""
    for one in group:
        attacks = one.saved.told["attacks"]
        shares[one.name] |= {f"{left}{name}": share for name, share in attacks.items()}
        shares[one.name] |= {"worst case": one.saved.told["worst"]}
    names = list(shares[group[0].name])
    rows: list[tuple[Cell | str, ...]] = [
        (name, *(accuracy_cell(shares[one.name][name], hint) for one in group)) for name in names
    ]
    rank = (
        Cell(f"{place[one.name]}" if one.name in place else "none, unreliable", tone="" if one.name in place else "bad")
        for one in group
    )
    note = (
        "95 % Wilson intervals of each number alone. Rank by the worst case: 1 and how many are surely better over the "
        "same inputs, so that runs which cannot be told apart share one."
    )
    if any(one.unreliable for one in group):
        note += " * unreliable: such a number has no rank."
    return Table(("accuracy", *(one.label for one in group)), (*rows, ("rank", *rank)), note=note)


def _chart(group: Sequence[One]) -> Chart:
    series = {
        one.label: [Bar(one.saved.told[key]["accuracy"], *one.saved.told[key]["ci95"]) for key in ("clean", "worst")]
        for one in group
    }
    rows = tuple(
        (one.label, accuracy_cell(one.saved.told["clean"]), accuracy_cell(one.saved.told["worst"])) for one in group
    )
    title = "Clean and worst-case accuracy"
    svg = bars(title, ["clean", "worst case"], series)
    return Chart(svg, title, Table(("run", "clean", "worst case"), rows), "Lines are 95 % Wilson intervals.")


def _paired_table(group: Sequence[One], tests: dict[str, dict[tuple[str, str], Paired]]) -> Table:
    labels = {one.name: one.label for one in group}
    rows = []
    for what, pairs in tests.items():
        for (one, other), pair in pairs.items():
            if len(group) > PAIRED and one != group[0].name:
                continue
            low, high = pair.ci95
            sure = "told apart" if pair.interval[0] > 0 or pair.interval[1] < 0 else "not told apart"
            if sure == "not told apart" and pair.needed is not None:
                sure += f"; about {pair.needed} inputs would, if the difference is this"
            rows.append(
                (
                    f"{what}: {labels[one]} − {labels[other]}",
                    f"{points(pair.difference)} points",
                    f"{points(low)} to {points(high)}",
                    f"{pair.p:.2g}",
                    str(pair.b),
                    str(pair.c),
                    sure,
                )
            )
    count = len(tests["worst case"])
    several = ""
    if count > 1:
        several = f" Told apart, and ranked, by intervals that make up for {count} pairs (Bonferroni: p below about "
        several += f"{SURE / count:.2g}, not {SURE})."
    heads = ("", "difference", "95 % interval", "p (McNemar)", "only the first right", "only the second", "")
    note = f"Over the same {len(group[0].saved.right)} inputs: Tango's interval, exact p.{several}"
    if len(group) > PAIRED:
        note += f" Of more than {PAIRED} runs, those pairs are shown that the first is in; the ranks are of all."
    return Table(heads, tuple(rows), note=note)


def _curves(group: Sequence[One]) -> Chart:
    series, rows = [], dict[str, list[Cell]]()
    for one in group:
        shares = [one.saved.told["clean"], *one.saved.told["curve"]]
        eps = [0.0, *(float(point["eps"]) for point in one.saved.told["curve"])]
        ends = ([share["ci95"][k] for share in shares] for k in (0, 1))
        series.append(Series(one.label, eps, [share["accuracy"] for share in shares], *ends))
        for at, share in zip(eps, shares, strict=True):
            rows.setdefault(number(at), []).append(accuracy_cell(share))
    norm = group[0].saved.protocol["norm"]
    title = f"Worst-case accuracy over eps ({norm})"
    table = Table((f"eps ({norm})", *(one.label for one in group)), tuple((at, *cells) for at, cells in rows.items()))
    svg = lines(title, series, f"eps ({norm})", "accuracy", percent=True, at_points=True)
    return Chart(svg, title, table, "Bands are 95 % Wilson intervals.")


def _sentence(group: Sequence[One], place: dict[str, int], worst: dict[tuple[str, str], Paired]) -> str:
    spoiled = [one.name for one in group if one.unreliable]
    doubt = f" UNRELIABLE, without a rank: {listed(spoiled)}." if spoiled else ""
    first = [name for name, rank in place.items() if rank == 1]
    n = len(group[0].saved.right)
    if len(place) < 2:
        return f"Over the same {n} inputs there are no two numbers to rank.{doubt}"
    if len(first) == len(place):
        return f"Over the same {n} inputs {listed(first)} are not told apart in the worst case.{doubt}"
    behind = [name for name in place if name not in first]
    pair = next((key for key in worst if set(key) == {first[0], behind[0]}), None)
    if len(first) == 1 and len(behind) == 1 and pair is not None:
        found = worst[pair]
        sign = 1 if pair[0] == first[0] else -1
        low, high = sorted(sign * end for end in found.ci95)
        return (
            f"Over the same {n} inputs {first[0]} withstands the attacks more often than {behind[0]}: "
            f"{points(sign * found.difference)} points (95 % interval {points(low)} to {points(high)}, "
            f"p = {found.p:.2g}).{doubt}"
        )
    return f"Over the same {n} inputs none is surely better in the worst case than {listed(first)}.{doubt}"


def _json(
    group: Sequence[One], place: dict[str, int], tests: dict[str, dict[tuple[str, str], Paired]]
) -> dict[str, Any]:
    return {
        "kind": "eval",
        "runs": [one.name for one in group],
        "protocol": {k: v for k, v in group[0].saved.protocol.items() if k not in ("model", "model_fingerprint")},
        "numbers": {
            one.name: {
                "clean": one.saved.told["clean"],
                "attacks": one.saved.told["attacks"],
                "worst": one.saved.told["worst"],
                "curve": one.saved.told.get("curve", []),
                "unreliable": one.unreliable,
                "rank": place.get(one.name),
            }
            for one in group
        },
        "paired": [
            {"of": what, "runs": list(names), **pair.to_json()}
            for what, pairs in tests.items()
            for names, pair in pairs.items()
        ],
    }
