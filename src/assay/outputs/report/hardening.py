"""What the report shows of a hardening run."""

import json
from typing import Any

from assay.core.store import Store
from assay.engines.final_look import last_look, last_result
from assay.engines.hardened import Round
from assay.engines.hardening_words import OUTDONE, looked, no_control
from assay.engines.round_book import rounds_of
from assay.engines.stored import only_trains
from assay.outputs.harden_tables import POOL, picked
from assay.outputs.notes import note_facts, note_title
from assay.outputs.tables import percent
from assay.outputs.verdicts import COLUMNS, MEANING, outcome, verdict_cells


def hardening_parts(folder: Store) -> dict[str, Any]:
    """The parts of the page that speak of rounds and of evaluations; those of other runs are empty."""
    rounds = rounds_of(folder)
    alone = only_trains(folder)
    return {
        "numbers": _numbers(folder, rounds, alone=alone),
        "requirement": _requirement(folder),
        "rounds": _rounds(rounds, alone=alone),
        "rounds_note": _meaning(alone=alone, pool=any(done.failing is not None for done in rounds)),
        "spoiled": _spoiled(rounds),
        "notes": {f"{_title(done)} of round {done.number}": note_facts(done.notes) for done in rounds if done.notes},
    }


def _numbers(folder: Store, rounds: list[Round], *, alone: bool) -> list[dict[str, Any]]:
    """Evaluations committed to the run, as tables: one column a model."""
    tables = []
    for line in folder.commits("numbers"):
        tables += [json.loads(folder.file(name)) for name in line.files]
    look = last_look(folder)
    if look is None:
        return tables
    result = last_result(folder)
    without = no_control(rounds, look.meta["best"], met=bool(result.get("met")), alone=alone)
    outdone = OUTDONE if alone and look.meta["best"] != result.get("best") else ""
    said = [looked(len(list(folder.commits("final")))), *filter(None, (without, outdone))]
    for name in look.meta["tables"]:
        table = json.loads(folder.file(name))
        tables.append(table | {"note": " ".join([table["note"], *(f"{line.capitalize()}." for line in said)])})
    return tables


def _requirement(folder: Store) -> dict[str, Any] | None:
    """What was asked last of a hardening run and the verdict on its result; None where the journal does not tell."""
    told = last_result(folder)
    if "until" not in told:
        return None
    rows = told["verdicts"]
    star = "; * unreliable, see below: meets nothing" if any(row["unreliable"] for row in rows) else ""
    return {
        "until": told["until"],
        "best": told["best"],
        "outcome": outcome(rows, met=told["met"]),
        "columns": COLUMNS,
        "rows": [verdict_cells(row) for row in rows],
        "note": f"{MEANING[0].upper()}{MEANING[1:]}{star}.",
    }


def _rounds(rounds: list[Round], *, alone: bool) -> list[dict[str, str]]:
    """The rounds of a hardening run, as text; a star where a check spoils the numbers."""
    rows = []
    pool = any(done.failing is not None for done in rounds)
    named = alone or any(done.made == "resistant" for done in rounds)
    for done in rounds:
        now, made = done.measured, {"model": done.made} if named else {}
        shares = {name: percent(share) for name, share in now.shares().items()}
        fol = {"FOL": "–" if now.fol is None else f"{now.fol:.3g}"}
        counts = {"selected": picked(done), "fixed": f"{done.fixed} of {done.checked}"}
        counts = (_pool(done) if pool else {"found": f"{done.found}"}) | counts
        counts = {**({} if alone else counts), "broken": f"{done.broken}"}
        rows.append({"round": f"{done.number}{'*' * now.unreliable}", **made, **shares, **fol, **counts})
    return rows


def _pool(done: Round) -> dict[str, str]:
    """How many cases were made, and how many of them fail; of what is no round of cases nothing is told."""
    return {"cases": f"{done.found}", "failing": "–" if done.failing is None else f"{done.failing}"}


def _title(done: Round) -> str:
    said = note_title(done.notes)
    return f"{said[0].upper()}{said[1:]}"


def _meaning(*, alone: bool, pool: bool) -> str:
    """What the columns of the rounds are."""
    first = "Round 0 is the original model; where there are two, round 1 is the resistant one."
    said = [
        "Round 0 is the original model, round 1 what was trained of it." if alone else first,
        "FOL: median of fresh PGD examples, near 0 where attacks converge.",
        *([f"{POOL[0].upper()}{POOL[1:]}."] if pool else []),
        *([] if alone else ["Fixed: failures never trained on that are right now."]),
        "Broken: clean inputs that were right for the original and are wrong now.",
        "95\u202f% Wilson intervals.",
    ]
    return " ".join(said)


def _spoiled(rounds: list[Round]) -> list[str]:
    """What the stars of the rounds stand for."""
    return [f"*UNRELIABLE, round {r.number} ({w['name']}): {w['message']}" for r in rounds for w in r.measured.warnings]
