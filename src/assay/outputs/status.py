"""Where a run stands."""

import fcntl
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from assay.core.lock import holder
from assay.core.places import known_as, writer_elsewhere
from assay.core.store import Store
from assay.engines.found import summary
from assay.engines.kinds import kinds_in
from assay.engines.regress import verdicts_in
from assay.engines.shrinkings import shrinkings
from assay.engines.stored import identity_of, keeps_all
from assay.outputs.models import Models, models_of
from assay.outputs.readings import SCREEN, is_number, screen_facts, screen_numbers
from assay.outputs.replayed import regress_lines
from assay.outputs.screen import Lines
from assay.outputs.seeding import opinion_facts, seeding_facts
from assay.outputs.shrunk import kinds_facts, shrinkings_facts
from assay.outputs.tables import coverage_facts
from assay.outputs.trouble import skipped_facts, stability_facts
from assay.outputs.verdicts import outcome, verdict_cells

MADE = {"original": " (the original)", "resistant": " (the resistant model)", "trained": " (trained)"}
WORDED = (
    *SCREEN,
    "models",
    "opinions",
    "seeding",
    "stability",
    "skipped_because",
    "kinds",
    "shrunk",
    "regress",
)  # in words
DISTINCT = "distinct by seed and class"


def run_status(run: Store) -> dict[str, Any]:
    """Counts from the journal, who works on it, what is damaged."""
    begin, found = identity_of(run), summary(run)
    stats, living, kinds = run.stats(), alive(run.path), kinds_in(run)
    writer = holder(run.path) if living else writer_elsewhere(run.path)
    result = next((line.meta for line in reversed(list(run.commits("best")))), {})
    return {
        "run": run.name,
        "path": known_as(run.path),
        "kind": begin.get("run", {}).get("kind"),
        "recipe": begin.get("recipe", {}).get("name"),
        "models": asdict(models_of(begin)) if "target" in begin else None,
        "commits": len(run.lines),
        "alive": living or writer is not None,
        "holder": writer,
        **run.totals("fuzz"),
        **({"every": True} if keeps_all(run) else {}),
        **_prioritised(run, begin),
        "skipped_because": found.skipped_because,
        "stability": found.stability,
        "kinds": None if kinds is None else kinds.to_json(),
        "shrunk": shrinkings(run),
        "regress": verdicts_in(run),
        "opinions": found.opinions,
        "seeding": found.seeding,
        "rounds": [_numbers(line.meta) for line in run.commits("round")],
        "best": result.get("best"),
        "until": result.get("until"),
        "met": result.get("met"),
        "verdicts": result.get("verdicts", []),
        "test_looks": len(list(run.commits("final"))) or None,
        "coverage": stats.get("coverage"),
        "seconds": seconds if is_number(seconds := stats.get("seconds")) else None,
        **screen_numbers(run, stats, living=living),
        "damage": run.damage,
        "quarantine": sorted(p.name for p in (run.path / "quarantine").glob("*")),
    }


def _prioritised(run: Store, begin: Mapping[str, Any]) -> dict[str, Any]:
    """Of a prioritisation: what is put in order, by what, and how far the questions went."""
    told = begin.get("run", {})
    if told.get("kind") != "prioritise":
        return {}
    done = [line.meta for line in run.commits("orders")]
    asked = run.stats().get("queries") or {}
    return {
        "by": ", ".join(told.get("by", [])),
        "pool": begin.get("data", {}).get("spec"),
        "complete": done[-1].get("complete") if done else False,
        "queries": asked.get("asked"),
        "limit": asked.get("limit"),
    }


def alive(path: Path) -> bool:
    """Whether a process of this host holds the lock of a run folder."""
    try:
        with (path / "LOCK").open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False
    except OSError:
        return False


def readable(told: dict[str, Any]) -> dict[str, str]:
    """The same for people."""
    holder_ = told["holder"] or {"pid": "?", "host": "?"}
    shown = {k: v for k, v in told.items() if v not in (None, [], {}) and k not in ("run", "holder", *WORDED)}
    if shown.pop("every", False) and "failures" in shown:  # a pool, not failures
        shown = _pool(shown)
    shown = {DISTINCT if name == "distinct" else name: value for name, value in shown.items()}
    shown["alive"] = f"yes, process {holder_['pid']} on {holder_['host']}" if told["alive"] else "no"
    shown |= skipped_facts(shown.pop("skipped", 0), told["skipped_because"]) | stability_facts(told["stability"])
    if "seconds" in shown:
        shown["seconds"] = f"{shown['seconds']:.1f}"
    shown |= kinds_facts(told["kinds"]) | shrinkings_facts(told["shrunk"])
    shown |= screen_facts(told)
    if told["regress"]:
        shown["old failures"] = Lines.of(regress_lines(told["regress"]))
    if told["coverage"] is not None:
        del shown["coverage"]
        shown |= coverage_facts(told["coverage"])
    if told["models"] is not None:
        models = Models(**told["models"])
        shown |= models.facts() or {"model": models.tested}
        shown |= opinion_facts(told["opinions"], told["seeding"], models, every=told.get("every", False))
        shown |= seeding_facts(told["seeding"], told.get("seeds", 0), models)
    if "rounds" in shown:
        shown["rounds"] = Lines.of(map(_round, shown["rounds"]))
    if told["verdicts"]:
        shown["met"] = outcome(told["verdicts"], met=told["met"])
        shown["verdicts"] = Lines.of(map(_verdict, told["verdicts"]))
    if "damage" in shown:
        shown["damage"] = Lines.of(shown["damage"])
    if "quarantine" in shown:
        shown["quarantine"] = f"{len(shown['quarantine'])} files"
    return {k: v if isinstance(v, str) else str(v) for k, v in shown.items()}


def _pool(shown: dict[str, Any]) -> dict[str, Any]:
    """What a run is told to hold whose recipe keeps every case."""
    names = {"failures": "cases kept, failing or not", "wrong": "of these the model is wrong on"}
    return {names.get(name, name): value for name, value in shown.items() if name not in ("distinct", "broken")}


def _numbers(meta: Mapping[str, Any]) -> dict[str, Any]:
    warnings = meta.get("warnings", [])
    trust = {"unreliable": bool(warnings), "warnings": warnings}
    made = {"made": meta["made"]} if "made" in meta else {}
    return {"round": meta["round"], **made, **meta["numbers"], **meta["counts"], **trust}


def _round(told: dict[str, Any]) -> str:
    """A round of hardening in one line."""
    made = told.get("made", "cases" if told["round"] else "original")  # old runs do not tell
    counts = f", {told['found']} found, {told['selected']} selected" if "found" in told and told["round"] else ""
    if "failing" in told:
        of = (told["found"], told["failing"], told["selected"], told["selected_failing"])
        counts = ", {} cases ({} failing), {} selected ({} failing)".format(*of)
    learned = counts + MADE.get(made, "")
    trust = f", UNRELIABLE ({', '.join(told['warnings'])})" if told["unreliable"] else ""
    return f"{told['round']}: clean {told['clean']:.3f}, robust {told['robust']:.3f}{learned}{trust}"


def _verdict(row: Mapping[str, Any]) -> str:
    """A clause of the requirement in one line."""
    clause, measured, interval, n, said = verdict_cells(row)
    spread = f" (95 % interval {interval}, n={n})" if "ci95" in row else ""
    return f"{clause}: {measured}{spread}, {said}"
