"""A gate on what a run has measured already."""

import time as clock
from collections.abc import Mapping
from typing import Any

from assay.core.errors import UsageError
from assay.core.places import known_as
from assay.core.requirement import Requirement
from assay.core.store import Store
from assay.engines.blocks import Progress
from assay.engines.evaluate import Model
from assay.engines.gate_decide import Rules
from assay.engines.gate_failures import examples_of, fooling, place_of
from assay.engines.gate_measure import Loading, Measuring
from assay.engines.gate_pieces import BASELINE, NOTHING, Pieces, name_of
from assay.engines.gate_result import Gate
from assay.engines.gate_runs import data_of, refuse_unlike, run_named, saved_in, side_of_saved, sides_of_hardening
from assay.engines.gate_sides import Side, held_against, trusted
from assay.engines.saved import Saved, saved_evaluation
from assay.engines.stored import kind_of


def gate_of_run(
    subject: Model,
    requirement: Requirement | None,
    baseline: Model | None,
    rules: Rules,
    given: Mapping[str, Any],
    loading: Loading,
    progress: Progress | None,
    began: float,
) -> Gate:
    """A gate on the numbers of a run; ``given`` are the wishes that would measure anew, which are refused."""
    run = run_named(subject)
    if run is None:
        raise UsageError(f"{name_of(subject)!r} is no run; a model is checked on data: --data digits/test")
    for name, value in given.items():
        if value is not None:
            raise UsageError(f"--{name.replace('_', '-')} is for a model; run {run.name} has its numbers already")
    if requirement is None:
        raise UsageError(NOTHING)
    pieces = Pieces(run=known_as(run.path))
    if kind_of(run) == "harden":
        if baseline is not None:
            raise UsageError(f"run {run.name} is a hardening: its baseline is the model it began with; leave it out")
        pieces.side, pieces.other = sides_of_hardening(run, requirement)
    elif saved_evaluation(run) is not None:
        saved = saved_in(run)
        pieces.side, pieces.other = _saved_sides(saved, requirement, baseline, loading, progress)
        _show(pieces, run, saved)
    else:
        raise UsageError(
            f"run {run.name} is of kind {kind_of(run) or 'unknown'} and holds no accuracies; check its model: "
            "assay check MODEL --data DATA, or save an evaluation: assay eval … --save NAME"
        )
    rows = held_against(requirement, pieces.side, pieces.other, rules, missing=BASELINE)
    rows = trusted(rows, pieces.side, pieces.other)
    base = None if pieces.other is None else pieces.other.name
    return pieces.gate(run.name, str(requirement), rows, rules, clock.monotonic() - began, base)


def _show(pieces: Pieces, run: Store, saved: Saved) -> None:
    side = pieces.side
    assert side is not None  # it was read just now
    fooled = fooling(examples_of(known_as(run.path)), saved.labels(), side.classes, place_of(side.protocol.get("data")))
    pieces.add(fooled, side.shares["clean"].right - side.shares["robust"].right)


def _saved_sides(
    saved: Saved, requirement: Requirement, baseline: Model | None, loading: Loading, progress: Progress | None
) -> tuple[Side, Side | None]:
    """A saved evaluation, and the baseline: another one, or a model that is measured the same now."""
    side, other, old = side_of_saved(saved, requirement), None, run_named(baseline)
    if old is not None:
        other = side_of_saved(saved_in(old), requirement)
    elif baseline is not None:
        found, _ = _like(saved, loading, progress).side(baseline, name_of(baseline, "the baseline"), data_of(saved))
        other = found.called({name: label for name in requirement.attacks for label in _labels(side, found, name)})
    if other is not None:
        refuse_unlike(side, other)
        other = other.as_baseline()
    return side, other


def _labels(side: Side, other: Side, name: str) -> list[str]:
    """What the attack that the requirement calls so is called in the other's own numbers."""
    return [label for label in other.right if label in side.right and side.right[label] is side.right.get(name)]


def _like(saved: Saved, loading: Loading, progress: Progress | None) -> Measuring:
    """With what the evaluation was measured, to measure another model the same."""
    told = saved.protocol
    if told.get("limited") or told.get("parts"):
        raise UsageError(
            f"the suite of run {saved.run.name} fits its own model only; save the baseline too and name it"
        )
    return Measuring(
        requirement=None,
        suite=", ".join(told["attacks"].values()),
        eps=told["eps"],
        norm=told["norm"] or "linf",
        seed=told["seed"],
        ignore=tuple(saved.told.get("ignored_checks", ())),
        deterministic=False,
        loading=loading,
        progress=progress,
        labels={},
        attacked=True,
        each=not saved.cascade,
    )
