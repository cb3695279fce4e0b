"""What is told of a fuzzing run's seeds, and of oracles that only gave their opinion."""

from collections.abc import Mapping
from typing import Any

from assay.outputs.models import Models

LABELLING = ("attacked", "agreed", "correct", "labelled")  # seeders that give a class to what has no label


def seeding_facts(told: Mapping[str, Any], worked: int, models: Models) -> dict[str, str]:
    """How the seeds came about, and which numbers stand on labels that nobody gave; nothing before they are chosen."""
    if not told:
        return {}
    again = ", some again in later cycles" if worked > told["seeds"] else ""
    facts = {"seeds": f"{told['seeds']}, {worked} worked{again}"}
    if len(told["steps"]) > 1:
        chain = ", ".join(f"{name} {count}" for name, count in told["steps"].items())
        facts["seeds left by each step"] = f"of {told['of']}: {chain}"
    if told["levels"]:
        facts["levels of the seeds"] = ", ".join(f"{name} {level:.3f}" for name, level in told["levels"].items())
    if told["unlabelled"]:
        facts["seeds without a label"] = (
            f"{told['unlabelled']}: failures are by what {labelled_by(told, models)} of the clean "
            "input; whether that is right needs labels"
        )
    return facts


def labelled_by(told: Mapping[str, Any], models: Models) -> str:
    """Whose word stands for a label that is lacking: ``the model says``."""
    first = next((name for name in told["steps"] if name in LABELLING), "")
    if models.vulnerable is not None:
        return f"the {'resistant' if first == 'correct' else 'vulnerable'} model says"
    return "the models say" if first == "agreed" and models.siblings else "the model says"


def opinion_facts(
    opinions: Mapping[str, int], told: Mapping[str, Any], models: Models, *, every: bool = False
) -> dict[str, str]:
    """How many valid cases other oracles would have called failures, of seeds that came about as ``told``.

    Where ``every`` case is kept, those that the model gets wrong are told beside their number already.
    """
    opinions = {name: n for name, n in opinions.items() if not every or name != "wrong_label"}
    left = "cases that left the class of their label"
    names = {"leaves": left, "leaves_wrong": left}
    if told.get("mined"):
        names = {"leaves": "cases that left the mined class"}
        names["leaves_wrong"] = f"{names['leaves']} and are wrong"
    names["wrong_label"] = "cases that the model gets wrong"
    names["agreed"] = f"cases on which {'all' if models.siblings else 'both'} models agree, wrongly"
    return {names.get(name, f"cases that {name} calls failures"): str(n) for name, n in opinions.items()}
