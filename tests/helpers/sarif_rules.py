"""The part of SARIF 2.1.0 that our files use, as a schema of our own: what the standard allows, and what GitHub asks.

Nothing beside the properties named here may be there, so that one the standard does not know is found.
"""

from typing import Any

import jsonschema

_URI = {"type": "string", "minLength": 1, "pattern": r"^(file:///)?[A-Za-z0-9._~%/-]+$"}  # relative, or of a file


def _object(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _text(most: int) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": most}


_LEVEL = {"enum": ["none", "note", "warning", "error"]}
_MESSAGE = _object(("text",), text=_text(4000), markdown=_text(4000))
_FILE = _object(("uri",), uri=_URI)
_LINE = {"type": "integer", "minimum": 1}
_REGION = _object(
    ("startLine", "startColumn", "endLine", "endColumn"),
    **dict.fromkeys(("startLine", "startColumn", "endLine", "endColumn"), _LINE),
)
_LOCATION = _object(
    ("physicalLocation",),
    physicalLocation=_object(("artifactLocation", "region"), artifactLocation=_FILE, region=_REGION),
)
_RULE = _object(
    ("id", "shortDescription", "fullDescription", "help"),
    id=_text(255),
    name=_text(255),
    shortDescription=_object(("text",), text=_text(1024)),
    fullDescription=_object(("text",), text=_text(1024)),
    help=_MESSAGE,
    defaultConfiguration=_object((), level=_LEVEL),
    properties={"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": True}}},
)
_RESULT = _object(
    ("ruleId", "ruleIndex", "level", "message", "locations", "partialFingerprints"),
    ruleId=_text(255),
    ruleIndex={"type": "integer", "minimum": 0},
    level=_LEVEL,
    message=_MESSAGE,
    locations={"type": "array", "minItems": 1, "maxItems": 1, "items": _LOCATION},
    partialFingerprints={"type": "object", "additionalProperties": {"type": "string"}},
    attachments={"type": "array", "uniqueItems": True, "items": _object(("artifactLocation",), artifactLocation=_FILE)},
    properties={"type": "object"},
)
_RUN = _object(
    ("tool", "results"),
    tool=_object(
        ("driver",),
        driver=_object(
            ("name", "rules"),
            name=_text(255),
            version=_text(255),
            semanticVersion={"type": "string", "pattern": r"^\d+\.\d+\.\d+"},
            rules={"type": "array", "uniqueItems": True, "items": _RULE},
        ),
    ),
    automationDetails=_object(("id",), id=_text(255)),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    invocations={
        "type": "array",
        "items": _object(
            ("executionSuccessful",),
            executionSuccessful={"type": "boolean"},
            toolExecutionNotifications={
                "type": "array",
                "items": _object(("message",), level=_LEVEL, message=_MESSAGE),
            },
        ),
    },
    results={"type": "array", "maxItems": 1000, "items": _RESULT},
    properties={"type": "object"},
)
SCHEMA = _object(
    ("$schema", "version", "runs"),
    **{"$schema": {"const": "https://json.schemastore.org/sarif-2.1.0.json"}},
    version={"const": "2.1.0"},
    runs={"type": "array", "minItems": 1, "maxItems": 1, "items": _RUN},
)


def check(log: Any) -> None:
    """The schema, and what it cannot say: rules that are there, fingerprints that differ."""
    jsonschema.Draft202012Validator(SCHEMA).validate(log)
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(set(rules)) == len(rules)
    assert {result["ruleId"] for result in run["results"]} == set(rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
    prints = [result["partialFingerprints"]["primaryLocationLineHash"] for result in run["results"]]
    assert len(set(prints)) == len(prints)
