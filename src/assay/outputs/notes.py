"""What a trainer and a selector say of their work, in words."""

from collections.abc import Mapping
from typing import Any


def note_facts(notes: Mapping[str, Any]) -> dict[str, str]:
    """The notes as names and sentences for a table; notes of trainers nobody here knows are shown as they are.

    >>> note_facts({"slice": "all", "layer": "act2", "depth": 3})
    {'cut after': 'act2', 'slice': 'all', 'depth': '3'}
    """
    rest = dict(notes)
    told = _selection(rest.pop("selection", {}))
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
    return told | _plain(rest)


def note_title(notes: Mapping[str, Any]) -> str:
    """Who says it: what the trainer says, what the selector and the trainer say."""
    who = ["selector"] * ("selection" in notes) + ["trainer"] * any(name != "selection" for name in notes)
    return f"what the {' and the '.join(who)} say{'s' * (len(who) == 1)}"


def _selection(said: Mapping[str, Any]) -> dict[str, str]:
    """What a selector says: of its stand-in for the model, of mutants, and what the sequential test came to.

    >>> _selection({"stand_in": {"agreement": 0.97, "checked_on": 500, "stopped": "tau", "rounds": []}, "meta": "mlp"})
    {'stand-in': 'gives the class of the model to 97.0 % of 500 inputs (stopped: tau)', 'meta': 'mlp'}
    """
    rest, told = dict(said), dict[str, str]()
    if "stand_in" in rest:
        made = rest.pop("stand_in")
        learned = f"learned from {made['rounds'][-1]['learned_from']} answers, " if made["rounds"] else ""
        told["stand-in"] = (
            f"{learned}gives the class of the model to {100 * made['agreement']:.1f} % of {made['checked_on']} inputs "
            f"(stopped: {made['stopped']})"
        )
    count = rest.pop("mutants", 0)
    if count:
        rates, rejected = (", ".join(f"{k} {v}" for k, v in rest.pop(name).items()) for name in ("rates", "rejected"))
        told["mutants"] = f"{count}; rates {rates}; rejected {rejected}"
    if "sensitive" in rest:
        counts = ", ".join(f"{rest.pop(name)} {name}" for name in ("sensitive", "undecided", "stable"))
        asked = f"{rest.pop('mutants_asked')} mutants a case ({100 * rest.pop('saved'):.1f} % saved)"
        told["sequential test"] = f"{counts}; {asked}"
    return told | _plain(rest)


def _plain(rest: Mapping[str, Any]) -> dict[str, str]:
    """Notes that nobody here knows, as they are."""
    return {name.replace("_", " "): str(value) for name, value in rest.items()}
