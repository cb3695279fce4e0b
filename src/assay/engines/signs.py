"""Signs that a fuzzing run is not working: named, worded, each with a place in the docs and what to do about it."""

from collections.abc import Collection, Mapping
from typing import Any

from assay.core.errors import UsageError
from assay.core.units import clock
from assay.engines.found import Found
from assay.engines.stability import words

STATUS, CHECKS = "docs/status.md#{}", "docs/checks.md#{}"
PLACES = {
    "no_finds_yet": STATUS,
    "dried_up": STATUS,
    "filters_too_much": STATUS,
    "zero_gradient": CHECKS,
    "mostly_flaky": STATUS,
    "seeds_skipped": STATUS,
    "bad_clean_accuracy": CHECKS,
    "randomised": CHECKS,
    "batch_dependent": CHECKS,
}
LOGGED = ("randomised", "batch_dependent", "seeds_skipped", "bad_clean_accuracy")  # said where they are met
NOTHING_CASES, NOTHING_SECONDS = 10_000, 60.0  # without a failure; chosen, not measured
DRY_SECONDS, DRY_SHARE = 120.0, 0.5  # since the last new failure, and of the whole time
LOOKED = 1_000  # cases before the share of valid ones says anything
FEW_VALID = 0.1  # of the cases tried
FLAT = 0.9  # of the seeds under way have no slope at all
FLAKY, FEW_FAILURES = 0.5, 20  # of what was found does not fail again
FEW_RIGHT = 0.5  # of the cases given are classified rightly


def check_ignored(names: Collection[str]) -> frozenset[str]:
    """Refuse names of signs that there are none of."""
    for name in names:
        if name not in PLACES:
            raise UsageError(f"there is no sign {name!r} to ignore; there are {', '.join(PLACES)}")
    return frozenset(names)


def signs(found: Found, now: Mapping[str, Any], ignored: Collection[str] = ()) -> list[dict[str, str]]:
    """What is wrong by the counts of a run and the readings of this moment: name, message, where to read on."""
    told = _finding(found, now) | _making(now) | _model(found)
    return [
        {"name": name, "message": told[name], "more": PLACES[name].format(name)}
        for name in PLACES
        if name in told and name not in ignored
    ]


def _finding(found: Found, now: Mapping[str, Any]) -> dict[str, str]:
    cases, failures, since = now["tried"], now["failures"], now["since_new"]
    if not failures and cases and (cases >= NOTHING_CASES or found.seconds >= NOTHING_SECONDS):
        return {
            "no_finds_yet": f"no failure in {cases} cases; a larger --eps, a recipe that climbs (robot), or more time: "
            "or the model holds in this ball, which assay eval measures"
        }
    if since is not None and since >= DRY_SECONDS and since >= DRY_SHARE * found.seconds:
        return {
            "dried_up": f"for {clock(since)} of {clock(found.seconds)} no failure of another seed or wrong class; more "
            "time finds the same again: other seeds, another recipe or a larger --eps find others"
        }
    return {}


def _making(now: Mapping[str, Any]) -> dict[str, str]:
    told: dict[str, str] = {}
    valid, flat = now["valid"], now["flat"]
    if valid is not None and now["tried"] >= LOOKED and valid < FEW_VALID:
        told["filters_too_much"] = (
            f"only {valid:.1%} of the cases are valid, the others cost a pass for nothing; a smaller step or a wider "
            "rule (--set valid=…) keeps more"
        )
    if flat is not None and flat >= FLAT:
        told["zero_gradient"] = (
            f"{flat:.0%} of the seeds under way have no slope to climb: the model is saturated or its output is a "
            "softmax; a recipe without gradients (noise, deephunter) does not mind"
        )
    return told


def _model(found: Found) -> dict[str, str]:
    told: dict[str, str] = {}
    if found.stability is not None and found.stability["warnings"]:
        told |= words(found.stability)
    every = found.flaky + found.failures
    if every >= FEW_FAILURES and found.flaky > FLAKY * every:
        told["mostly_flaky"] = f"{found.flaky} of {every} failures did not fail again when asked anew: see flaky/"
    if found.skipped:
        told["seeds_skipped"] = f"{found.skipped} seeds are left out, the model failed on them: {found.skipped_because}"
    step, left = next(iter(found.seeding.get("steps", {}).items()), ("", 0))
    if step == "correct" and left < FEW_RIGHT * found.seeding["of"]:
        told["bad_clean_accuracy"] = (
            f"the model is right on {left} of {found.seeding['of']} cases only; are these the data, the range and the "
            "labels it was made for?"
        )
    return told
