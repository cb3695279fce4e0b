"""What a fuzzing run tells of a model that does not behave: how steady its answers are, and what it failed on."""

from collections.abc import Mapping
from typing import Any


def stability_facts(told: Mapping[str, Any] | None) -> dict[str, str]:
    """How many seeds were answered the same when they were asked again; nothing of runs that never asked."""
    if told is None:
        return {}
    if not told["asked"]:
        return {"stability": f"n/a ({told['reason']})"}
    share = "{:.1f} %".format(100 * told["same_class"] / told["asked"])
    scores = "{:.1f} %".format(100 * told["same_scores"] / told["asked"])
    line = f"{share} of {told['asked']} seeds keep their class when asked again, {scores} their scores"
    if told["warnings"]:
        line += f" ({', '.join(told['warnings'])}); failures fail {told['confirm'].replace('/', ' of ')} times"
    return {"stability": line}


def skipped_facts(skipped: int, because: str | None) -> dict[str, str]:
    """Seeds that were left out, and why."""
    return {"skipped": f"{skipped} seeds, each tried twice: {because}"} if skipped else {}
