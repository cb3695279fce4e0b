"""Regressions of single inputs: old failures that fail still, and inputs that fuzzing finds between two versions."""

from collections.abc import Sequence

from assay.core.errors import Interrupted
from assay.engines.blocks import Progress
from assay.engines.evaluate import Model
from assay.engines.fuzz import fuzz
from assay.engines.gate_decide import count_row
from assay.engines.gate_failures import found_by_fuzzing
from assay.engines.gate_measure import Loading
from assay.engines.gate_pieces import name_of
from assay.engines.gate_result import GateFailure, GateRow
from assay.engines.regress import Regress, Regressed
from assay.engines.replay import STILL_FAILING
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
    """The old failures that are none of the past."""
    return [
        GateFailure(one.id, "old failure", one.label, one.pred or "no number", place=run.run)
        for run in told.runs
        for one in run.failures
        if one.verdict == STILL_FAILING
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
) -> tuple[GateRow, list[GateFailure], str]:
    """Look for inputs that the old model gets right and the new one wrong; each counts."""
    how = loading.options()
    target = load_target(model, data=data, **how)
    old = load_target(baseline, data=data, device=loading.device, mean=loading.mean, std=loading.std)
    both = target.gives & old.gives
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
    folder = str(found.run)
    if found.interrupted:
        raise Interrupted(f"stopped while looking for regressions; those found are in {folder}")
    failures = found_by_fuzzing(found.load(), target.spec.classes, place) if found.failures else []
    message = (
        f"fuzzing found {found.failures} inputs, from {found.broken} seeds, that the baseline gets right and the model "
        f"wrong, in {found.cases} cases; at most {allowed} may be; see: assay report {folder}"
    )
    return count_row(NEW, found.failures, allowed, found.cases, message), failures, folder
