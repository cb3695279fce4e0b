"""What shrinking made of failures, in numbers and for people; and how many kinds of failures there are."""

from collections.abc import Iterable, Mapping
from typing import Any

from assay.core.places import known_as
from assay.engines.kinds import SAME_KIND
from assay.engines.shrinkings import BEYOND_K, Shrunk
from assay.outputs.screen import Lines

PAIRS = 5  # of classes that a line of kinds names


def shrink_line(numbers: Mapping[str, Any]) -> tuple[str, float | None]:
    """How far a shrinking is."""
    rate = numbers["questions"] / max(numbers["seconds"], 1e-9)
    text = f"{numbers['done']} of {numbers['of']} cases, {numbers['questions']} questions ({rate:.0f}/s)"
    return text, numbers["done"] / max(numbers["of"], 1)


def shrunk_numbers(made: Shrunk) -> dict[str, Any]:
    """A shrinking as ``--json`` tells it."""
    return {
        "run": known_as(made.run),
        "by": made.by,
        "cases": made.of,
        "failing": made.failing,
        "minimal": int(made.cases.info["minimal"].sum()),
        "eight_bit": made.eight_bit,
        "seed_fails": int((made.cases.info["changed"] == 0).sum()),
        "left_out": dict(made.left_out),
        "median": made.medians(),
        "questions": made.questions,
        "seconds": None if made.seconds is None else round(made.seconds, 3),
        "shrunk": made.number,
        "files": list(made.files),
        "new": made.new,
        "complete": made.complete,
        "queries": None if made.queries is None else dict(made.queries),
    }


def shrunk_facts(made: Shrunk) -> dict[str, str]:
    """The same for people."""
    told = shrunk_numbers(made)
    median, what = told["median"], "pixels" if made.cases.x.dim() == 4 else "entries"

    def pair(name: str, form: str) -> str:
        before, after = median[f"{name}_before"], median[name]
        return "–" if after is None else f"{before:{form}} → {after:{form}}"

    fixed = f", {made.of - made.failing} of {made.of} do not fail" if made.failing < made.of else ""
    short = f", {made.failing - told['minimal']} not shown to be minimal" if told["minimal"] < made.failing else ""
    facts = {
        "cases": f"{made.failing}{fixed}{short}",
        f"changed {what} (median)": pair("changed", ".0f"),
        "l2 (median)": pair("l2", ".3g"),
        "linf (median)": pair("linf", ".3g"),
        **({} if made.eight_bit is None else {"fail as 8-bit images": f"{made.eight_bit} of {made.failing}"}),
        "questions a case": "–" if not len(made) else f"{made.questions / made.failing:.0f}",
        **({} if made.seconds is None else {"seconds": f"{made.seconds:.1f}"}),
    }
    if told["left_out"]:
        facts["left out"] = left_out(told["left_out"], made.wanted)
    if told["seed_fails"]:
        facts["nothing left"] = f"{told['seed_fails']}: their seed itself fails in the same way"
    rest = f" and {len(made.files) - 1} more" if len(made.files) > 1 else ""
    facts[f"shrinking {made.number}"] = f"{made.files[0]}{rest}" + ("" if made.new else ", made before")
    return facts


def left_out(counts: Mapping[str, int], first: int = 0) -> str:
    """Why failures were not looked at, in words; where there were enough, ``first`` of them are taken.

    >>> left_out({"same_kind": 206, "beyond_k": 56}, 5)
    '206 like one that was taken, 56 beyond the first 5'
    """
    words = {SAME_KIND: "like one that was taken", BEYOND_K: f"beyond the first {first}"}
    return ", ".join(f"{count} {words.get(reason, reason)}" for reason, count in counts.items())


def kinds_facts(told: Mapping[str, Any] | None) -> dict[str, str]:
    """How many kinds of failures there are, and of which classes; nothing where there is no failure."""
    if told is None:
        return {}
    pairs = told["pairs"]
    named = [f"{one['from']} → {one['to']}: {one['failures']} of {_kinds(one)}" for one in pairs[:PAIRS]]
    more = [f"{len(pairs) - PAIRS} more pairs of classes"] if len(pairs) > PAIRS else []
    return {"kinds of failures": Lines.of([kinds_count(told), *named, *more])}


def kinds_count(told: Mapping[str, Any]) -> str:
    """How many kinds there are in all."""
    return f"{told['count']}{' or more' if told['capped'] else ''}"


def shrinkings_facts(told: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """What a run keeps of its shrinkings, a line each."""
    return {
        f"shrinking {one['number']}": f"{one['cases']} of {one['of']} cases by {one['by']}"
        + ("" if one["complete"] else "; the same command goes on")
        for one in told
    }


def _kinds(pair: Mapping[str, Any]) -> str:
    return f"{pair['kinds']}{' or more' if pair['capped'] else ''} kind{'s' if pair['kinds'] != 1 else ''}"
