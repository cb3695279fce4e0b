"""What a trainer says of its work, in words."""

from collections.abc import Mapping
from typing import Any


def note_facts(notes: Mapping[str, Any]) -> dict[str, str]:
    """The notes as names and sentences for a table; notes of trainers nobody here knows are shown as they are.

    >>> note_facts({"slice": "all", "layer": "act2", "depth": 3})
    {'cut after': 'act2', 'slice': 'all', 'depth': '3'}
    """
    rest = dict(notes)
    told: dict[str, str] = {}
    if "history" in rest:
        first, last = rest.pop("epochs_mined", (0, 0))
        made = " (our variant: no history was found)" if rest.pop("history_made", False) else ""
        told["history"] = f"{rest.pop('history')}{made}; epochs {first} to {last} were surer of some input"
        rest.pop("history_fingerprint", None)
    if "used" in rest:
        before, after = rest.pop("confidence", (0.0, 0.0))
        told["mined"] = (
            f"{rest.pop('used')} of {rest.pop('inputs')} inputs ({rest.pop('inputs_from')}), "
            f"{rest.pop('used_wrong')} of them wrong now; mean confidence {before:.3f}, in that epoch {after:.3f}"
        )
    if "checked" in rest:
        before = f"(accuracy before: {rest.pop('checked_accuracy_before'):.4f})"
        told["chosen on"] = f"{rest.pop('checked')} more of these inputs, never learned from {before}"
    if "layer" in rest:
        told["cut after"] = str(rest.pop("layer"))
    if "slice" in rest:
        counts = rest.pop("sliced", {})
        size = (
            f": {counts['weights']} of {counts['of']} weights before the cut, {counts['units']} of "
            f"{counts['of_units']} units in the loss"
            if counts
            else ""
        )
        told["slice"] = f"{rest.pop('slice')}{size}"
    return told | {name.replace("_", " "): str(value) for name, value in rest.items()}
