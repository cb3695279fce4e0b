"""The page docs/papers/twinfuzz.md: every number on it is computed from the rows."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from papers.rows import Row
from papers.tables import cell, column, lacked, seeds_of, table
from papers.twinfuzz_arms import FILTERS
from papers.twinfuzz_differences import differences
from papers.twinfuzz_fuzzing import filters, fuzzing, oracles, parents, tried
from papers.twinfuzz_measure import STATIC
from papers.twinfuzz_tables import NAMES, ORDER, average, by_arm, subjects, usual
from papers.twinfuzz_texts import NOT_HERE, PROTOCOL, SCRIPT, SETTINGS_TEXT, TABLES_TEXT
from papers.twinfuzz_verdict import verdict

STATIC_COLUMNS = {
    "clean": "clean",
    "fooling_seen": "training-specific",
    "fooling_new": "generalised",
    "fooling_new_bim": "generalised and BIM",
    "corruptions": "corruptions",
}
WHITE_COLUMNS = {
    "near_seen": "training-specific, eps/3",
    "near_new": "generalised, eps/3",
    "auto_near": "AutoAttack, eps/3",
    "white_seen": "training-specific, eps",
    "white_new": "generalised, eps",
    "auto": "AutoAttack, eps",
}
BY_ATTACK = ("plain", "resistant", "fine-tuning", "noise", "BIM cases", "RobOT", "DLFuzz", "TwinFuzz", "adversarial")


def write_page(rows: Sequence[Row], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    every = usual([r for r in rows if "limit" not in r["protocol"]])
    parts = [verdict(every, subjects()), PROTOCOL, tables(every), parents(every), tried(every), oracles(every)]
    parts += [fuzzing(every), filters(every), NOT_HERE, missing(every)]
    (out / "twinfuzz.md").write_text("\n".join(parts), encoding="utf-8")


# ---- robustness ----


def tables(rows: list[Row]) -> str:
    parts = [TABLES_TEXT]
    for subject in subjects():
        found = subject.rows(rows, "arms")
        if not found:
            continue
        parts.append(f"### {subject.title}\n\n`{SCRIPT} arms {subject.command}`\n")
        parts += ["Static, those examples that fool the plain net; and corruptions:\n", _static(found)]
        parts += ["White box, with the number of parents of the cases:\n", _white(found)]
        parts += [_by_attack(found), differences(found)]
    return "\n".join(parts)


def _static(found: list[Row]) -> str:
    body = []
    for name, some in by_arm(found):
        used = column(some, "cases")
        count = f"{mean(used):.0f}" if used else "0"
        numbers = [cell(column(some, key)) for key in STATIC_COLUMNS]
        body.append([NAMES.get(name, name), seeds_of([some]), count, *numbers])
    return table(["arm", "seeds", "cases", *STATIC_COLUMNS.values()], body)


def _white(found: list[Row]) -> str:
    body = []
    for name, some in by_arm(found):
        grown = average(column(some, "picked.parents"), 0)
        body.append([NAMES.get(name, name), grown, *(cell(column(some, key)) for key in WHITE_COLUMNS)])
    return table(["arm", "parents", *WHITE_COLUMNS.values()], body)


def _by_attack(found: list[Row]) -> str:
    """Every attack apart: static examples that fool the plain net, and white box in the smaller ball."""
    body = []
    for name, some in by_arm(found):
        if name in BY_ATTACK:
            means = [(column(some, f"fooling.{a}"), column(some, f"near.{a}")) for a in STATIC]
            body.append([NAMES.get(name, name), *(f"{average(static)} / {average(near)}" for static, near in means)])
    return "By attack, static (fooling only) / white box at eps/3, means:\n\n" + table(["arm", *STATIC], body)


# ---- what was not run ----


def missing(rows: list[Row]) -> str:
    """What a full page would have and this one has not."""
    body = []
    for subject in subjects():
        for experiment, names in (("arms", ORDER), ("filters", tuple(FILTERS))):
            there = {(r["protocol"]["arm"], r["protocol"]["seed"]) for r in subject.rows(rows, experiment)}
            lacking = {name: tuple(s for s in subject.seeds if (name, s) not in there) for name in names}
            whole, absent = len(names) * len(subject.seeds), sum(map(len, lacking.values()))
            if absent:
                told = "all" if absent == whole else lacked(lacking, subject.seeds)
                command = f"`{experiment} {subject.command}`"
                body.append([f"{experiment}, {subject.title}", f"{whole - absent} of {whole}", told, command])
    if not body:
        return "## Rows not run\n\nNone.\n"
    return "## Rows not run\n\n" + table(["rows", "there", "missing, with seeds", "command"], body) + SETTINGS_TEXT
