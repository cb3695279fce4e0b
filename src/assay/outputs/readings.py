"""What ``stats.json`` says of a fuzzing run, for screens: checked, for it is a file that anybody may have changed."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from assay.core.memory import size
from assay.core.store import Store
from assay.core.units import clock
from assay.outputs.screen_text import Lines, workers_line

NUMBERS = ("tried", "rate", "rate_mean", "failures", "waiting", "distinct", "broken", "flaky", "skipped", "nonfinite")
MAYBE = ("since_new", "valid", "stability", "next_commit", "coverage", "kinds", "time_limit", "cases_limit")
COUNTS = ("seconds", "seeds", "cases")
_LARGEST = 1e18  # a whole number may be larger than any float, which no line of ours can show


def reading(stats: Mapping[str, Any]) -> dict[str, Any] | None:
    """The last reading of a fuzzing run with its counts, as its own screen shows it; None where there is none."""
    now = stats.get("now")
    if not isinstance(now, Mapping):
        return None
    given = {**now, **{name: stats.get(name) for name in COUNTS}}
    if not all(is_number(given.get(name)) for name in (*NUMBERS, *COUNTS, "seed_list")):
        return None
    told = {name: given[name] for name in (*NUMBERS, *COUNTS, "seed_list")}
    told |= {name: given.get(name) if is_number(given.get(name)) else None for name in MAYBE}
    told = {name: value for name, value in told.items() if value is not None or name in MAYBE[:4]}
    told["warnings"] = warnings_in(stats)
    told["memory"] = _counts(now.get("memory"))
    told["rules"] = _counts(now.get("rules"))
    told |= {"workers": workers} if (workers := workers_in(now)) is not None else {}
    told["operators"] = operators_in(stats)
    if isinstance(now.get("queries"), Mapping):
        told["queries"] = {name: v for name, v in now["queries"].items() if name in ("asked", "limit") and is_number(v)}
    return told


def warnings_in(stats: Mapping[str, Any]) -> list[dict[str, str]]:
    """The signs that a run is not working, as ``stats.json`` has them."""
    given = stats.get("warnings")
    rows = [row for row in given if isinstance(row, Mapping)] if isinstance(given, list) else []
    return [{name: str(row.get(name, "")) for name in ("name", "message", "more")} for row in rows]


def operators_in(stats: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """What each operator of the mutator has brought."""
    given = stats.get("operators")
    rows = {str(name): _counts(row) for name, row in given.items()} if isinstance(given, Mapping) else {}
    return {name: row for name, row in rows.items() if {"cases", "failures"} <= row.keys()}


def workers_in(stats: Mapping[str, Any]) -> dict[str, int] | None:
    """The workers of a run on Ray: how many there are, were wanted and are lost; None where it has none."""
    found = _counts(stats.get("workers"))
    return found if {"workers", "wanted", "lost"} <= found.keys() else None


def is_number(value: Any) -> TypeGuard[float]:
    """Whether it is a number that can be shown.

    >>> is_number(3), is_number(10**400), is_number("3")
    (True, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST


def _counts(given: Any) -> dict[str, Any]:
    return {str(name): n for name, n in given.items() if is_number(n)} if isinstance(given, Mapping) else {}


# told in words
SCREEN = ("valid", "valid_share", "last_new", "rate", "operators", "warnings", "workers", "under_way", "updated")


def screen_numbers(run: Store, stats: Mapping[str, Any], *, living: bool) -> dict[str, Any]:
    """What the screen of a run shows besides its counts; ``under_way`` while somebody works on it."""
    lines = [line.meta["counts"] for line in run.commits("fuzz") if "valid" in line.meta.get("counts", {})]
    tried = sum(int(counts["cases"]) for counts in lines)
    rate = stats.get("stats", {}).get("cases_per_second") if isinstance(stats.get("stats"), Mapping) else None
    return {
        "valid_share": sum(int(counts["valid"]) for counts in lines) / tried if tried else None,
        "last_new": stats.get("last_new") if is_number(stats.get("last_new")) else None,
        "rate": rate if is_number(rate) else None,
        "operators": operators_in(stats),
        "warnings": warnings_in(stats),
        "workers": workers_in(stats),
        "under_way": reading(stats) if living else None,
        "updated": stats.get("updated") if is_number(stats.get("updated")) else None,
    }


def screen_facts(told: Mapping[str, Any]) -> dict[str, str]:
    """The same for people."""
    facts: dict[str, str] = {}
    if told["rate"] is not None:
        facts["cases a second"] = f"{told['rate']:.0f}"
    if told["last_new"] is not None and is_number(told["seconds"]):
        facts["last new failure"] = f"after {clock(told['last_new'])} of {clock(told['seconds'])}"
    if told["valid_share"] is not None:
        facts["valid"] = f"{told['valid_share']:.1%} of cases"
    facts |= operator_facts(told["operators"])
    if told["workers"] is not None:
        facts["workers"] = workers_line(told["workers"])
    if told["under_way"] is not None:
        facts |= _under_way(told["under_way"], told["updated"])
    return facts | warning_facts(told["warnings"])


def operator_facts(operators: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    """What each operator of the mutator has brought, the best first."""
    shares = {name: row["failures"] / max(row["cases"], 1) for name, row in operators.items()}
    best = sorted((name for name in shares if operators[name]["cases"]), key=lambda name: -shares[name])
    rows = ((name, operators[name], shares[name]) for name in best)
    told = (f"{name}: {row['failures']} of {row['cases']} cases ({share:.1%})" for name, row, share in rows)
    return {"failures by operator": Lines.of(told)} if best else {}


def warning_facts(rows: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The signs that a run is not working, one a line."""
    told = (f"{row['name']}: {row['message']} ({row['more']})" for row in rows)
    return {"warnings": Lines.of(told)} if rows else {}


def _under_way(now: Mapping[str, Any], updated: float | None) -> dict[str, str]:
    """The last reading of a run that somebody works on."""
    age = "" if updated is None else f", read {clock(max(0.0, time.time() - updated))} ago"
    facts = {"under way": f"{now['tried']} cases ({now['rate']:.0f}/s), {now['waiting']} failures to commit{age}"}
    if now["memory"]:
        parts = (f"{'GPU ' if name == 'gpu' else ''}{size(n)}" for name, n in now["memory"].items())
        facts["memory"] = ", ".join(parts)
    return facts
