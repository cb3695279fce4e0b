"""Hardenings beside each other, by their look at the test part: white box and static in tables of their own."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.core.stats import newcombe
from assay.engines.evaluation import Share
from assay.engines.final_look import last_look, last_result
from assay.engines.hardened import Tested
from assay.engines.stored import identity_of
from assay.outputs.report.charts import Bar, bars
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
    unlike,
    verdicts,
)
from assay.outputs.report.evaluated import warning_note
from assay.outputs.report.parts import Cell, Chart, Note, Part, Section, Table


@dataclass(frozen=True, slots=True)
class One:
    """A hardening under its name; ``test`` is None where the test part was not looked at yet."""

    name: str
    begin: Mapping[str, Any]
    result: Mapping[str, Any]
    test: Tested | None

    @property
    def conditions(self) -> dict[str, Any]:
        """What decides which numbers mean the same."""
        ball = self.begin.get("ball", {})
        return {
            "norm": ball.get("norm"),
            "eps": ball.get("eps"),
            "suite": self.begin.get("recipe", {}).get("suite"),
            "data hash (test)": self.begin.get("data", {}).get("test"),
            "n": None if self.test is None else self.test.after.clean.n,
            "seed": self.begin.get("run", {}).get("seed"),
        }

    @property
    def original(self) -> Any:
        return self.begin.get("target", {}).get("fingerprint")


def compared_hardenings(runs: Sequence[Run]) -> Compared:
    """What hardening runs say beside each other."""
    every = [_one(run) for run in runs]
    done = [one for one in every if one.test is not None]
    told = Compared()
    parts: list[Part] = []
    if done:
        rows: dict[str, list[Any]] = {key: [one.conditions[key] for one in done] for key in done[0].conditions}
        rows["original model (hash)"] = [one.original for one in done]
        rows["recipe"] = [one.begin.get("recipe", {}).get("name") for one in done]
        rows["until"] = [one.result.get("until") for one in done]
        parts.append(
            side_by_side([one.name for one in done], rows, "Models and recipes may differ; the rest must not.")
        )
    parts += [Note(f"{one.name} has not ended and is not compared.", "warning") for one in every if one.test is None]
    shown = Section("hardened", "Conditions side by side", tuple(parts))
    groups = set_apart(told, done, lambda one, other: unlike(one.conditions, other.conditions), shown, "measured")
    sentences = verdicts(groups, lambda group, suffix: _group(told, group, suffix))
    if told.unlike:
        sentences.append("Hardenings measured under unlike conditions are not ranked.")
    told.tone = "warning" if told.unlike or len(done) < len(every) else told.tone
    told.verdict = " ".join(sentences) or "No two hardenings that have ended can be compared."
    return told


def _one(run: Run) -> One:
    look = last_look(run.store)
    test = None
    if look is not None:
        # The file of the look itself; the others are tables made of it.
        name = next(name for name in look.files if name not in look.meta["tables"])
        test = Tested.of_json(json.loads(run.store.file(name)))
    return One(run.name, identity_of(run.store), last_result(run.store), test)


def _group(told: Compared, group: Sequence[One], suffix: str) -> str:
    tests = {one.name: one.test for one in group if one.test is not None}
    sound = [name for name, test in tests.items() if not test.after.unreliable]
    worst = {name: test.after.worst for name, test in tests.items()}
    level = pairwise(len(sound))
    place = ranks(sound, lambda one, other: _surely(worst[one], worst[other], level))
    names = list(tests)
    parts: list[Part] = [_table(tests, place), _chart(tests)]
    parts += [warning_note(w, name) for name, test in tests.items() for w in test.after.warnings]
    told.sections.append(Section(f"after{suffix}", f"Test part, white box, {listed(names)}", tuple(parts)))
    title = f"Test part, static, {listed(names)}"
    told.sections.append(Section(f"static{suffix}", title, (_static(tests),)))
    told.groups.append(_json(group, tests, place))
    spoiled = [name for name in names if name not in place]
    told.tone = "warning" if spoiled else told.tone
    doubt = f" UNRELIABLE, without a rank: {listed(spoiled)}." if spoiled else ""
    first = [name for name in names if place.get(name) == 1]
    if len(place) < 2 or len(first) == len(place):
        return f"On the test part {listed(list(place) or names)} are not told apart after hardening.{doubt}"
    return f"After hardening, on the test part, none is surely better in the worst case than {listed(first)}.{doubt}"


def _surely(one: Share, other: Share, level: float) -> bool:
    return newcombe(one.right, one.n, other.right, other.n, level)[0] > 0


def _table(tests: Mapping[str, Tested], place: Mapping[str, int]) -> Table:
    rows: list[tuple[Cell | str, ...]] = []
    for name, test in tests.items():
        star = "*" * test.after.unreliable
        gain = test.after.worst.accuracy - test.before.worst.accuracy
        rows.append(
            (
                f"{name}{star}",
                *(accuracy_cell(m.clean.to_json()) for m in (test.before, test.after)),
                *(accuracy_cell(m.worst.to_json()) for m in (test.before, test.after)),
                "–" if test.control is None else accuracy_cell(test.control.worst.to_json()),
                f"{points(gain)} points",
                str(place.get(name, "none, unreliable")),
            )
        )
    heads = ("run", "clean before", "clean after", "worst before", "worst after", "worst, control", "gain", "rank")
    note = (
        "Attacks made anew on each model. 95 % Wilson intervals. Rank by the worst case after: 1 and how many are "
        "surely better (Newcombe's interval of shares counted apart: which inputs each got right is not kept)."
    )
    return Table(heads, tuple(rows), note=note)


def _chart(tests: Mapping[str, Tested]) -> Chart:
    series = {
        word: [Bar(share.accuracy, *share.ci95) for share in shares]
        for word, shares in (
            ("before", [test.before.worst for test in tests.values()]),
            ("after", [test.after.worst for test in tests.values()]),
        )
    }
    rows = tuple(
        (name, accuracy_cell(test.before.worst.to_json()), accuracy_cell(test.after.worst.to_json()))
        for name, test in tests.items()
    )
    title = "Worst case before and after hardening, test part, white box"
    return Chart(bars(title, list(tests), series), title, Table(("run", "before", "after"), rows))


def _static(tests: Mapping[str, Tested]) -> Table:
    rows = tuple(
        (
            name,
            *(accuracy_cell(m.static_worst.to_json()) for m in (test.before, test.after)),
            "–" if test.control is None else accuracy_cell(test.control.static_worst.to_json()),
        )
        for name, test in tests.items()
    )
    note = "Examples made on each run's own original model: runs of unlike originals were shown unlike examples."
    return Table(("run", "worst before", "worst after", "worst, control"), rows, note=note)


def _json(group: Sequence[One], tests: Mapping[str, Tested], place: Mapping[str, int]) -> dict[str, Any]:
    return {
        "kind": "harden",
        "runs": list(tests),
        "conditions": group[0].conditions,
        "numbers": {
            name: {**test.to_json(), "unreliable": test.after.unreliable, "rank": place.get(name)}
            for name, test in tests.items()
        },
    }
