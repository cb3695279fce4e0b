"""Regressions of single inputs: old failures that fail still, and inputs that fuzzing finds between two versions."""

import shlex
from collections.abc import Sequence

from assay.core.errors import Interrupted, NothingToTest
from assay.core.places import known_as
from assay.engines.blocks import Progress
from assay.engines.evaluate import Model
from assay.engines.fuzz import fuzz
from assay.engines.gate_decide import count_row
from assay.engines.gate_failures import found_by_fuzzing
from assay.engines.gate_measure import Loading
from assay.engines.gate_pieces import name_of
from assay.engines.gate_result import GateFailure, GateRow
from assay.engines.regress import Regress, Regressed
from assay.engines.replay import FIXED
from assay.engines.session import session
from assay.subjects.bench import Data
from assay.subjects.sources.load import load_target

OLD, NEW = "old_failures", "regressions"


def asked_again(
    runs: Sequence[str], model: Model, data: Data, loading: Loading, progress: Progress | None
) -> Regressed | None:
    """The failures of earlier runs, each asked anew of this model."""
    if not runs:
        return None
    old = Regress.of(runs, None, fresh=False, device=loading.device, mean=loading.mean, std=loading.std)
    target = load_target(model, data=data, **loading.options())
    with session(), target.ready():
        return old.all(target, name_of(model), None, progress or (lambda _: None))


def old_row(told: Regressed, allowed: int) -> GateRow:
    """How many old failures fail still; one that fails now and then is no better."""
    counts = told.counts()
    still, of = counts["still_failing"] + counts["flaky"], sum(len(run) for run in told.runs)
    runs = ", ".join(run.run for run in told.runs)
    message = f"{still} of {of} failures of {runs} fail still, {counts['fixed']} are fixed; at most {allowed} may fail"
    return count_row(OLD, still, allowed, of, message)


def still_failing(told: Regressed) -> list[GateFailure]:
    """The old failures that are none of the past: those that fail now and then too."""
    return [
        GateFailure(one.id, "old failure", one.label, one.pred or "no number", place=run.run)
        for run in told.runs
        for one in run.failures
        if one.verdict != FIXED
    ]


def fuzzed(
    model: Model,
    baseline: Model,
    data: Data,
    *,
    eps: str | float | None,
    norm: str,
    time: str | float,
    allowed: int,
    run: str | None,
    seed: int,
    place: str,
    loading: Loading,
    progress: Progress | None,
    deterministic: bool,
    lost: int,
) -> tuple[GateRow, list[GateFailure], str | None]:
    """Look for inputs that the old model gets right and the new one wrong; each counts.

    ``lost`` inputs are so as they are. The search begins at inputs that both get right, so it never meets them.
    """
    how = loading.options()
    target = load_target(model, data=data, **how)
    old = load_target(baseline, data=data, device=loading.device, mean=loading.mean, std=loading.std)
    if old.fingerprint() == target.fingerprint():
        same = f"{lost} of {len(data)} inputs as they are are right for the baseline and wrong for the model, and no "
        same += "others are looked for: both are the same net with the same weights"
        return count_row(NEW, lost, allowed, len(data), same), [], None
    both = target.gives & old.gives
    try:
        found = fuzz(
            "regression" if "grad" in both else "regression-blind",
            model,
            data,
            siblings=(baseline if isinstance(baseline, str) else old,),
            eps=eps,
            norm=None if eps is None else norm,
            time=time,
            run=run,
            fresh=run is not None,
            seed=seed,
            deterministic=deterministic,
            progress=progress,
            **how,
        )
    except NothingToTest:
        if not lost:
            raise
        message = f"{lost} of {len(data)} inputs as they are are right for the baseline and wrong for the model"
        return (
            count_row(NEW, lost, allowed, len(data), f"{message}; no input is right for both to begin a search at"),
            [],
            None,
        )
    folder = known_as(found.run)
    if found.interrupted:
        raise Interrupted(f"stopped while looking for regressions; those found are in {folder}")
    failures = found_by_fuzzing(found.load(), target.spec.classes, place) if found.failures else []
    message = (
        f"{lost} of {len(data)} inputs as they are and {found.failures} of {found.cases} that fuzzing made (from "
        f"{found.broken} seeds) are right for the baseline and wrong for the model; at most {allowed} may be; see: "
        f"assay report {shlex.quote(folder)}"
    )
    row = count_row(NEW, lost + found.failures, allowed, len(data) + found.cases, message)
    return row, failures, folder
