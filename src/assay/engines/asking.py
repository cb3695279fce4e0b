"""What engines do with targets that only answer: where answers are kept, and what was asked."""

from pathlib import Path
from typing import Any

from assay.core import store
from assay.core.real import check_real
from assay.subjects.asked import Asked
from assay.subjects.target import Target

ANSWERS = "answers.jsonl"  # the file of a run that keeps what a black box answered


def answers_in(run: str | None, folder: Path | None = None, *, fresh: bool = False) -> Path | None:
    """Where the answers of a run to be continued lie, None where it is a new one: what they tell is not asked again."""
    place = folder or (None if run is None or fresh else store.place(run))
    if place is None:
        return None
    check_real(place)
    return place / ANSWERS


def keep_answers(target: Target, folder: Path) -> None:
    """Keep a black box's answers in the run's folder, and know those that are there."""
    if isinstance(target, Asked):
        target.keep(folder / ANSWERS)


def asked_of(target: Target) -> dict[str, Any] | None:
    """How often a black box was asked, and how many answers disagreed; None of any other target."""
    if not isinstance(target, Asked):
        return None
    unsteady = {"unsteady": target.unsteady} if target.repeats > 1 else {}
    return {**target.queries.to_json(), **unsteady}


def how_to_ask(ask: str, queries: int | None) -> dict[str, dict[str, Any]]:
    """The tables of a configuration that say how a black box is asked; neither makes a run another one.

    What changes answers (labels alone, repeats) is in the target's fingerprint.
    """
    tables: dict[str, dict[str, Any]] = {"ask": {"how": ask}} if ask else {}
    return tables | ({"budget": {"queries": queries}} if queries is not None else {})
