"""A gate as JUnit XML: a test case for each thing required and for each attack, as CI servers show tests."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree as ET

from assay.engines.gate_result import Gate, GateRow
from assay.outputs.gate.words import SHORT, clean, decided, facts, interval, number, value, verdict

# What the servers read (GitLab, Jenkins, pytest's xunit2): the class is what they show as the suite, a name that comes
# twice is dropped by some, and some read only the text of a failure while others read only its attribute.
REQUIREMENT, ATTACK = "assay.requirement", "assay.attack"


def junit(gate: Gate, *, when: datetime | None = None) -> bytes:
    """The file; ``when`` is the time that it names, now where nothing is said."""
    failures = str(sum(not row.met for row in gate.rows))
    counts = {"tests": str(len(gate.rows) + len(gate.attacks)), "failures": failures, "errors": "0"}
    took = {"time": f"{gate.seconds:.3f}"}
    root = ET.Element("testsuites", {"name": "assay", **counts, **took})
    at = (when or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    suite = ET.SubElement(root, "testsuite", {"name": "assay check", **counts, "skipped": "0", **took, "timestamp": at})
    properties = ET.SubElement(suite, "properties")
    for name, told in facts(gate):
        ET.SubElement(properties, "property", {"name": name, "value": told})
    for row, name in zip(gate.rows, _apart(row.clause for row in gate.rows), strict=True):
        _requirement(ET.SubElement(suite, "testcase", _case(REQUIREMENT, name, 0.0)), row)
    for numbers, name in zip(gate.attacks.values(), _apart(gate.attacks), strict=True):
        case = ET.SubElement(suite, "testcase", _case(ATTACK, name, float(numbers.get("seconds") or 0.0)))
        ET.SubElement(case, "system-out").text = _attack(numbers)
    ET.SubElement(suite, "system-out").text = "\n".join([f"gate: {verdict(gate)}", *map(decided, gate.rows)])
    if gate.warnings:
        lines = (f"{clean(w.get('name', ''), SHORT)}: {clean(w.get('message', ''))}" for w in gate.warnings)
        ET.SubElement(suite, "system-err").text = "\n".join(lines)
    ET.indent(root)
    body: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return body + b"\n"


def _case(kind: str, name: str, seconds: float) -> dict[str, str]:
    return {"classname": kind, "name": name, "time": f"{seconds:.3f}"}


def _requirement(case: ET.Element, row: GateRow) -> None:
    """A failure where it is not met, undecided or unreliable: the type says which."""
    lines = [decided(row), f"value {value(row)}, 95 % interval {interval(row.ci95)}, n {row.n or '–'}"]
    if row.met:
        ET.SubElement(case, "system-out").text = "\n".join(lines)
        return
    failure = ET.SubElement(case, "failure", {"message": decided(row), "type": row.status})
    failure.text = "\n".join(lines)


def _attack(told: Mapping[str, Any]) -> str:
    ci95 = told.get("ci95")
    bounds = interval(None if ci95 is None else (ci95[0], ci95[1]))
    return f"accuracy {number(told.get('accuracy'))}, 95 % interval {bounds}, n {told.get('n') or '–'}"


def _apart(names: Iterable[str]) -> list[str]:
    """The names, those that are the same once they are clean told apart by a number."""
    made: list[str] = []
    for name in names:
        shown, again = clean(name, SHORT) or "unnamed", 2
        told = shown
        while told in made:
            told, again = f"{shown} ({again})", again + 1
        made.append(told)
    return made
