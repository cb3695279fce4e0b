"""Tables of what fuzzing found: cases, seeds, the terms of the objective, parents, oracles, filters, what was tried."""

from collections.abc import Iterator, Sequence
from statistics import mean
from typing import Any

from papers.rows import Row
from papers.tables import cell, column, pick, seeds_of, table
from papers.twinfuzz_arms import ARMS, FILTERS, TRIED
from papers.twinfuzz_tables import Subject, average, by_arm, ranked, subjects
from papers.twinfuzz_texts import (
    FILTER_TEXT,
    FUZZING_TEXT,
    ORACLE_TEXT,
    PARENTS_AFTER,
    PARENTS_TEXT,
    TRIED_AFTER,
    TRIED_TEXT,
)

ORACLES = ("paper's seeds", "agreed oracle")
BESIDE = ("TwinFuzz", "paper's seeds", "no mining", "RobOT", "DLFuzz")  # what tried arms are shown beside
ENDS = {"fooling_new": "static", "near_new": "white box, eps/3", "auto_near": "AutoAttack, eps/3"}
FAMILY = {name for name, arm in (ARMS | TRIED).items() if arm.recipe == "twinfuzz"}
FUZZERS = {name for name, arm in (ARMS | TRIED).items() if arm.make == "fuzz"}


def fuzzing(rows: list[Row]) -> str:
    parts = [FUZZING_TEXT]
    for subject in subjects():
        found = [r for r in subject.rows(rows, "arms") if "picked" in r["numbers"]]
        if found:
            parts += [f"### {subject.title}\n", _found(found), _seeding(found), _terms(found)]
    return "\n".join(parts)


def _found(found: list[Row]) -> str:
    body = []
    for name, some in by_arm(found):
        shares = [r["numbers"]["found"] / r["numbers"]["tried"] for r in some if r["numbers"].get("found")]
        rate = f"{100 * mean(shares):.1f} %" if shares and "found" in some[0]["numbers"] else "–"
        shape = [average(column(some, f"picked.{key}"), d) for key, d in (("parents", 0), ("ssim", 3), ("l2", 2))]
        shape.append(average(column(some, "picked.linf")))
        wrong = [average(column(some, f"share_wrong.{net}"), 2) for net in ("vulnerable", "resistant")]
        body.append([name, seeds_of([some]), average(column(some, "found"), 0), rate, *shape, *wrong])
    head = ["arm", "seeds", "failures", "of those tried", "parents of the picked", "SSIM", "L2", "linf"]
    return table([*head, "plain net wrong", "resistant net wrong"], body)


def _seeding(found: list[Row]) -> str:
    """Of how many images each step of the chain left how many, and what left the mined class."""
    body = []
    for name, some in by_arm(found):
        told = [r["numbers"]["seeding"] for r in some if r["numbers"].get("seeding", {}).get("grown")]
        if not told:
            continue
        steps, level = _chain(told)
        leaves, wrong = (column(some, f"opinions.{key}") for key in ("leaves", "leaves_wrong"))
        right = average([1 - w / total for total, w in zip(leaves, wrong, strict=True) if total], 2)
        body.append([name, *steps, level, average(leaves, 0), right])
    head = ["arm", "attacked", "of good quality", "agreed: seeds", "SSIM level", "cases that leave the reference class"]
    return table([*head, "of these, right"], body) if body else ""


def _chain(told: Sequence[dict[str, Any]]) -> tuple[list[str], str]:
    """How many cases the three steps of TwinFuzz's chain left, and the level of the quality filter, in the mean."""
    steps = [
        average([t["steps"][s] for t in told if s in t.get("steps", {})], 0) for s in ("attacked", "quality", "agreed")
    ]
    return steps, average([t["levels"]["ssim"] for t in told if "ssim" in t.get("levels", {})])


def _terms(found: list[Row]) -> str:
    """The three terms of the objective, apart."""
    body = []
    for name, some in by_arm(found):
        terms = [column(some, f"picked.{key}") for key in ("fol", "lib", "entropy")]
        if not all(terms):
            continue
        fol, lib, entropy = terms
        ce = [total - 10 * h for total, h in zip(lib, entropy, strict=True)]
        shown = (fol, ce, [10 * h for h in entropy])
        body.append([name, *(f"{mean(values):.3g}" for values in shown)])
    head = ["arm", "FOL", "cross-entropy of the reference class", "10 · entropy"]
    return table(head, body) if body else ""


# ---- parents ----


def parents(rows: list[Row]) -> str:
    """How the number of parents and robustness go together, in each subject."""
    body = []
    for subject in subjects():
        every = [r for r in subject.rows(rows, "arms") if "parents" in r["numbers"].get("picked", {})]
        for title, names in (("TwinFuzz and its variants", FAMILY), ("all fuzzers", FUZZERS)):
            found = [r for r in every if r["protocol"]["arm"] in names]
            cells = [_correlated(found, key) for key in ENDS]
            if found:
                count = len({r["protocol"]["arm"] for r in found})
                body.append([subject.title, title, str(count), str(len(found)), *cells])
    head = ["subject", "arms of", "arms", "nets", *ENDS.values()]
    return PARENTS_TEXT + (table(head, body) + PARENTS_AFTER if body else "No rows yet.\n")


def _correlated(found: Sequence[Row], key: str) -> str:
    """Rank correlation of parents with a column, over the means of arms / over nets."""
    arms = [pick(found, arm=name) for name in sorted({r["protocol"]["arm"] for r in found})]
    means = [[mean(column(some, name)) for some in arms] for name in ("picked.parents", key)]
    told = [ranked(*means), ranked(column(found, "picked.parents"), column(found, key))]
    return " / ".join("–" if value is None else f"{value:+.2f}" for value in told)


# ---- what was tried ----


def tried(rows: list[Row]) -> str:
    """What was tried and left, beside arms of the page, in tables of the same seeds."""
    parts = [TRIED_TEXT]
    for subject in subjects():
        for seeds, names in _alike(subject, rows):
            found = [r for r in subject.rows(rows, "arms") if r["protocol"]["seed"] in seeds]
            parts += [f"{subject.title}, seeds {', '.join(map(str, seeds))}:\n", _tried(found, [*names, *BESIDE])]
    return "\n".join([*parts, TRIED_AFTER]) if parts[1:] else TRIED_TEXT + "\nNo rows yet.\n"


def _alike(subject: Subject, rows: list[Row]) -> Iterator[tuple[tuple[int, ...], list[str]]]:
    """The tried arms of a subject, those with the same seeds together."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, some in by_arm(subject.rows(rows, "arms"), tuple(TRIED)):
        groups.setdefault(tuple(sorted(r["protocol"]["seed"] for r in some)), []).append(name)
    yield from groups.items()


def _tried(found: list[Row], names: Sequence[str]) -> str:
    body = []
    for name, some in by_arm(found, names):
        numbers = [cell(column(some, key)) for key in ("clean", *ENDS)]
        body.append([name, average(column(some, "picked.parents"), 0), *numbers])
    return table(["arm", "parents", "clean", *ENDS.values()], body)


# ---- ablations ----


def oracles(rows: list[Row]) -> str:
    body = []
    for subject in subjects():
        arms = {name: pick(subject.rows(rows, "arms"), arm=name) for name in ORACLES}
        both = set.intersection(*({r["protocol"]["seed"] for r in some} for some in arms.values()))
        for name, every in arms.items() if both else ():
            some = [r for r in every if r["protocol"]["seed"] in both]
            free = not ARMS[name].labels
            told = [average(column(some, key), d) for key, d in (("found", 0), ("picked.parents", 0))]
            told += [average(column(some, key)) if free else "1" for key in ("precision", "labels_right")]
            ends = [cell(column(some, key)) for key in ENDS]
            rule = "`agreed`, no labels" if free else "`leaves_wrong`, labels"
            body.append([subject.title, rule, seeds_of([some]), *told, *ends])
    head = ["subject", "oracle", "seeds", "failures", "parents", "wrong by the true label", "label right"]
    return ORACLE_TEXT + (table([*head, *ENDS.values()], body) if body else "No rows yet.\n")


def filters(rows: list[Row]) -> str:
    body = []
    for subject in subjects():
        for name in FILTERS:
            some = pick(subject.rows(rows, "filters"), arm=name)
            if not some:
                continue
            steps, level = _chain([r["numbers"].get("seeding") or {} for r in some])
            shape = [average(column(some, f"picked.{key}"), d) for key, d in (("ssim", 3), ("l2", 2))]
            count = average(column(some, "found"), 0)
            body.append([subject.title, name, seeds_of([some]), *steps, level, count, *shape])
    head = ["subject", "filter", "seeds", "attacked", "of good quality", "agreed", "SSIM level", "failures"]
    return FILTER_TEXT + (table([*head, "SSIM of failures", "L2"], body) if body else "No rows yet (see the end).\n")
