"""A gate as SARIF 2.1.0: what code hosts show beside the files of a change.

A rule for each kind of failure, a result for each requirement that does not hold and for each input of the sample.
"""

import hashlib
import json
from collections import Counter
from typing import Any

from assay.core.environment import version_of
from assay.engines.gate_result import Gate, GateFailure, GateRow
from assay.outputs.gate.words import SHORT, clean, decided, facts, finite, model_file, number, replay_line, uri, verdict

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
MOST = 1000  # results; hosts keep 5000 of 25 000, and nobody reads more
LEVELS = {"not met": "error", "undecided": "warning", "unreliable": "warning"}
# id: what it is, what it means, what to do.
RULES = {
    "requirement-not-met": (
        "A requirement does not hold",
        "A number that the gate asks for is on the wrong side of its bound, and its interval says so.",
        "Look at the failing inputs in the report (assay report RUN), harden the model (assay harden) or, where the "
        "bound asks too much, change it where the gate is called.",
    ),
    "requirement-undecided": (
        "A requirement cannot be decided",
        "The interval of the number holds both sides of the bound: too few inputs were looked at.",
        "Give more inputs or more time; the message says how many inputs would decide it.",
    ),
    "requirement-unreliable": (
        "A number cannot be trusted",
        "A check found that the evaluation overstates the model, for example by masked gradients or random answers.",
        "See what the check says and docs/checks.md; a number that cannot be trusted passes no gate.",
    ),
    "robust": (
        "An input that an attack turns",
        "The model is right on the clean input and wrong on one within the given distance of it.",
        "assay replay asks it anew, assay shrink makes the change smaller, assay harden trains with such inputs.",
    ),
    "clean": (
        "An input that the model gets wrong",
        "The model is wrong on an input as it is, with no change at all.",
        "Look whether its label is right; if so, the model has to learn it.",
    ),
    "regression": (
        "An input that the older model gets right",
        "The baseline is right on this input and the new model is wrong.",
        "Look what the change of the model has to do with it; assay fuzz MODEL --recipe regression --with OLD finds "
        "more of them.",
    ),
    "old-failure": (
        "An old failure that still fails",
        "An input of an earlier run that was to be mended is still wrong.",
        "assay replay RUN ID asks it anew.",
    ),
}


def sarif(gate: Gate) -> bytes:
    """The file: at most 1000 results, those of requirements first; how many were left out is told."""
    failing = [row for row in gate.rows if not row.met]
    results = [_of_row(gate, row) for row in failing]
    results += [_of_failure(gate, failure) for failure in gate.failures]
    results = _numbered(results[:MOST])
    rules = list(dict.fromkeys(result["ruleId"] for result in results))
    for result in results:
        result["ruleIndex"] = rules.index(result["ruleId"])
    shown = sum("case" in result["properties"] for result in results)
    driver = {
        "name": "Assay",
        "version": version_of("assay"),
        "semanticVersion": version_of("assay"),
        "rules": [_rule(rule) for rule in rules],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": "assay/check/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": _notices(gate)}],
        "results": results,
        "properties": {
            **{name.replace(" ", "_"): value for name, value in facts(gate)},
            "verdict": verdict(gate),
            "failed": max(gate.failed, len(gate.failures)),
            "shown": shown,
        },
    }
    told = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(told, indent=1, allow_nan=False).encode() + b"\n"


def _message(text: str) -> dict[str, str]:
    """A message whose brackets and braces are text: SARIF reads links and places to fill in from them."""
    for mark in ("\\", "[", "]"):
        text = text.replace(mark, f"\\{mark}")
    return {"text": text.replace("{", "{{").replace("}", "}}")}


def _of_row(gate: Gate, row: GateRow) -> dict[str, Any]:
    numbers = {"value": row.value, "ci95": row.ci95, "n": row.n, "needed": row.needed}
    return _result(
        f"requirement-{row.status.replace(' ', '-')}",
        LEVELS[row.status],
        decided(row),
        model_file(gate.subject),
        ("row", row.clause),
        {"clause": clean(row.clause, SHORT), **{name: finite(value) for name, value in numbers.items()}},
    )


def _of_failure(gate: Gate, failure: GateFailure) -> dict[str, Any]:
    by = f" after {clean(failure.attack, SHORT)}" if failure.attack else ""
    data = clean(gate.protocol.get("data") or failure.place or "the data", SHORT)
    row = "" if failure.row is None else f", row {failure.row} of {data}"
    size = f", change {number(failure.size)}" if failure.size else ""
    again = replay_line(gate, failure)
    text = f"Class {clean(failure.true, SHORT)!r} is taken for {clean(failure.predicted, SHORT)!r}{by}{row}{size}." + (
        f" Ask it anew: {clean(again)}" if again else ""
    )
    # Not the case's id: with every new model it is another one, and the alert would be closed and opened each time.
    same = (failure.attack, failure.place, failure.row) if failure.row is not None else (failure.id,)
    kind = clean(failure.kind, SHORT)
    told: dict[str, Any] = {"case": clean(failure.id, SHORT), "true": clean(failure.true, SHORT)}
    told |= {"predicted": clean(failure.predicted, SHORT), "row": failure.row, "size": finite(failure.size)}
    result = _result(
        kind.replace(" ", "-") if kind.replace(" ", "-") in RULES else "robust",
        "note" if gate.met else "warning",
        text,
        failure.place or model_file(gate.subject),
        (failure.kind, *same, failure.true),
        told,
    )
    if failure.picture:
        result["attachments"] = [{"artifactLocation": {"uri": uri(failure.picture)}}]
    return result


def _result(
    rule: str, level: str, text: str, place: str, same: tuple[object, ...], properties: dict[str, Any]
) -> dict[str, Any]:
    digest = hashlib.sha256(repr((rule, *same)).encode()).hexdigest()[:16]
    return {
        "ruleId": rule,
        "level": level,
        "message": _message(text),
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": uri(place)},
                    # Hosts want a line; data and weights have none.
                    "region": {"startLine": 1, "startColumn": 1, "endLine": 1, "endColumn": 1},
                }
            }
        ],
        "partialFingerprints": {"primaryLocationLineHash": digest},
        "properties": {name: value for name, value in properties.items() if value is not None},
    }


def _numbered(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results that have one fingerprint told apart by how many came before."""
    seen: Counter[str] = Counter()
    for result in results:
        prints = result["partialFingerprints"]
        digest = prints["primaryLocationLineHash"]
        seen[digest] += 1
        prints["primaryLocationLineHash"] = f"{digest}:{seen[digest]}"
    return results


def _rule(name: str) -> dict[str, Any]:
    short, full, help_text = RULES[name]
    level = "error" if name in ("requirement-not-met", "regression") else "warning"
    return {
        "id": name,
        "name": "".join(part.capitalize() for part in name.split("-")),
        "shortDescription": {"text": short},
        "fullDescription": {"text": full},
        "help": {"text": f"{full} {help_text}", "markdown": f"{full}\n\n{help_text}"},
        "defaultConfiguration": {"level": level},
        "properties": {"tags": ["robustness"], "precision": "very-high", "problem.severity": level},
    }


def _notices(gate: Gate) -> list[dict[str, Any]]:
    """The trust checks that fired, and what the file leaves out."""
    told = [f"{clean(w.get('name', ''), SHORT)}: {clean(w.get('message', ''))}" for w in gate.warnings]
    wanted = max(gate.failed, len(gate.failures)) + sum(not row.met for row in gate.rows)
    shown = min(MOST, len(gate.failures) + sum(not row.met for row in gate.rows))
    if wanted > shown:
        told.append(f"{wanted - shown} of {wanted} results are left out")
    if not gate.complete:
        told.append("the time ended first: the numbers are of the inputs before")
    return [{"level": "warning", "message": _message(text)} for text in told]
