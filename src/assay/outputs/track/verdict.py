"""What a piece of work came to, in one sentence."""

from collections.abc import Mapping
from typing import Any


def verdict_of(verb: str, told: Mapping[str, Any]) -> str:
    """The headline of a result, "" where there is none.

    >>> verdict_of("fuzz", {"failures": 3, "cases": 100, "seeds": 10, "broken": 2})
    '3 failures in 100 cases; 2 of 10 seeds broken'
    """
    try:
        return _headline(verb, told)
    except (KeyError, TypeError, ValueError):  # no result of ours: the caller's own, of which nobody knows the form
        return ""


def _headline(verb: str, told: Mapping[str, Any]) -> str:
    if not told:
        return ""
    if verb == "fuzz":
        return f"{told['failures']} failures in {told['cases']} cases; {told['broken']} of {told['seeds']} seeds broken"
    if verb == "eval":
        clean, worst = told["clean"], told["worst"]
        trust = ", UNRELIABLE: " + ", ".join(w["name"] for w in told["warnings"]) if told["warnings"] else ""
        return f"{_share(clean)} clean, {_share(worst)} in the worst case, n={clean['n']}{trust}"
    if verb == "harden":
        said = "; ".join(f"{v['clause']}: {v['value']}" for v in told.get("verdicts", ()))
        met = "not met" if not told["met"] else "met, by numbers that are UNRELIABLE" if told["unreliable"] else "met"
        return f"requirement {met}" + (f" ({said})" if said else "")
    if verb == "train":
        return f"validation accuracy {told['val_accuracy']:.4f} in epoch {told['best_epoch']} of {told['epochs']}"
    if verb == "prioritise" and told.get("faults") is not None:
        return f"{told['faults']} of {told['labelled']} labelled tests are wrong; {len(told['methods'])} orders"
    return ""


def _share(told: Mapping[str, Any]) -> str:
    low, high = told["ci95"]
    return f"{told['accuracy']:.3f} [{low:.3f}, {high:.3f}]"
