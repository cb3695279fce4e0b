"""Small files that tell by themselves whether they are as they were written: each holds a sum of the rest."""

import json
import re
from collections.abc import Mapping
from typing import Any

from assay.core.files import canonical_json, sha256

_MARK = re.compile(rb"# sum: ([0-9a-f]{16})\n")
_SUM = "sum"


def sealed_text(content: bytes) -> bytes:
    """Text of a format in which ``#`` begins a comment, with its sum as the last line."""
    return content + f"# sum: {sha256(content)[:16]}\n".encode()


def text_fits(content: bytes) -> bool:
    """Whether such a text has a sum, and one that fits."""
    start = content.rfind(b"\n", 0, len(content) - 1) + 1
    mark = _MARK.fullmatch(content[start:])
    return mark is not None and mark[1].decode() == sha256(content[:start])[:16]


def sealed_json(told: Mapping[str, Any]) -> bytes:
    """A JSON object for people to read, with its sum as the last value."""
    return json.dumps({**told, _SUM: _sum_of(told)}, indent=1, allow_nan=False).encode()


def json_of(content: bytes, *, sealed: bool) -> dict[str, Any] | None:
    """The object, None where it is damaged. One that is not ``sealed`` was written before there were sums."""
    try:
        told = json.loads(content)
        if not isinstance(told, dict):
            return None
        seen = told.pop(_SUM, None)
        return told if (seen is None and not sealed) or seen == _sum_of(told) else None
    except (ValueError, RecursionError):
        return None


def _sum_of(told: Mapping[str, Any]) -> str:
    # As it is read back: keys become text, tuples lists.
    return sha256(canonical_json(json.loads(json.dumps(told))).encode())[:16]
