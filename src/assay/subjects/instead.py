"""What a target that gives less than asked for could be used with instead."""

import ast
from collections.abc import Collection

from assay.core.entries import DATA_KINDS, FOLDERS, Entry
from assay.core.registry import entries

_ORDERING = ("score", "selector")  # tests are put in order by either


def would_work(kind: str, has: Collection[str]) -> list[str]:
    """The stages of a kind that need no more than ``has``; none where there are no stages of such a kind."""
    if kind not in FOLDERS or kind in DATA_KINDS.values():
        return []
    kinds = _ORDERING if kind in _ORDERING else (kind,)
    return [entry.name for each in kinds for entry in entries(each) if set(needs_of(entry)) <= set(has)]


def needs_of(entry: Entry) -> tuple[str, ...]:
    """What a stage needs as it comes: of a selector by a score, what its usual score needs too."""
    usual = next((p.default for p in entry.parameters if p.name == "score" and p.default is not None), None)
    name = None if usual is None else ast.literal_eval(usual)
    scored = (e.needs for e in entries("score") if e.name == name)
    return (*entry.needs, *next(scored, ()))
