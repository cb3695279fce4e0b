"""The gate: hold a model, or what a run has measured, against a requirement."""

import time as clock
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from assay.core.deadline import limited
from assay.core.errors import UsageError
from assay.core.requirement import Requirement
from assay.core.store import Store
from assay.core.units import seconds
from assay.engines.blocks import Progress
from assay.engines.cluster import Cluster, cluster_of, connected
from assay.engines.evaluate import Model
from assay.engines.evaluation import Evaluation
from assay.engines.gate_decide import Rules
from assay.engines.gate_failures import examples_of, fooling, newly_wrong, place_of
from assay.engines.gate_measure import Loading, Measuring, first_of, inputs_of
from assay.engines.gate_of_run import gate_of_run
from assay.engines.gate_pieces import BASELINE, NOTHING, Pieces, name_of
from assay.engines.gate_regressions import asked_again, fuzzed, old_row, still_failing
from assay.engines.gate_result import Gate, GateRow
from assay.engines.gate_runs import refuse_unlike, run_named, saved_in, side_of_saved
from assay.engines.gate_sides import Side, held_against, trusted
from assay.subjects.bench import Data


@limited
def check(
    subject: Model,
    data: str | Data | tuple[Tensor, Tensor] | None = None,
    *,
    require: str = "",
    baseline: Model | None = None,
    suite: Any = None,
    eps: str | float | None = None,
    norm: str | None = None,
    confidence: float = 0.95,
    decide: str = "interval",
    time: str | float | None = None,
    regressions: Sequence[str] = (),
    fuzz_regressions: str | float | None = None,
    allow_regressions: int = 0,
    save: str | None = None,
    fresh: bool = False,
    ignore: Sequence[str] = (),
    seed: int = 0,
    size: str = "",
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    device: str = "auto",
    queries: int | None = None,
    ask: str = "",
    white_box: bool = False,
    deterministic: bool = False,
    call_timeout: str | float | None = None,
    ray: str | Cluster | None = None,
    workers: int | None = None,
    gpu_share: float | None = None,
    memory: dict[Any, Any] | None = None,
    progress: Progress | None = None,
) -> Gate:
    """Whether a model meets a requirement, written ``"robust>=0.4, robust[*]>=0.2, clean_drop<=0.02"``.

    The subject is a model, measured on ``data``, or without data a run: a saved evaluation, or a hardening, whose
    numbers are taken as they are. ``robust`` is the worst case over the suite, ``clean`` the accuracy without attack,
    any attack may be named; ``robust[cat]`` is the floor of a class and ``robust[*]`` of each; ``clean_drop``,
    ``robust_drop``, ``pgd_drop`` are what is lost against the ``baseline``, a model or a saved evaluation, on the same
    inputs.

    A clause is met where its whole interval (of level ``confidence``) lies on the right side, ``undecided`` where the
    bound lies in it, and then ``needed`` says how many inputs would decide; ``decide="point"`` goes by the bare number.
    What a trust check spoils is ``unreliable``. Only a gate whose every row is met is met.

    ``time`` is a budget: blocks of inputs in an order drawn with the seed, as many as fit. ``regressions`` are earlier
    runs whose failures are asked again, ``fuzz_regressions`` is how long to look for inputs that the baseline gets
    right and the model wrong; at most ``allow_regressions`` of either may be.

    With ``ray`` (local, auto or an address) attacks are run by ``workers`` of a Ray cluster, each with a ``gpu_share``
    of a GPU where the model is on one; the numbers are the same.

    ``memory``, where it is given, holds what was measured: the same model is not measured twice the same way.
    """
    began, rules = clock.monotonic(), Rules.of(confidence, decide)
    requirement = Requirement.parse(require, gate=True) if require.strip() else None
    if requirement is None and not regressions and fuzz_regressions is None:
        raise UsageError(NOTHING)
    if fuzz_regressions is not None and baseline is None:
        raise UsageError(f"regressions are found against an older model; {BASELINE}")
    cluster = cluster_of(ray, workers, gpu_share)
    loading = Loading(device, mean, std, queries, ask, white_box)
    if data is None:
        given = {"suite": suite, "eps": eps, "norm": norm, "time": time, "save": save, "ignore": tuple(ignore) or None}
        given |= {"regressions": tuple(regressions) or None, "fuzz_regressions": fuzz_regressions, "ray": cluster}
        return gate_of_run(subject, requirement, baseline, rules, given, loading, progress, began)
    old = run_named(baseline)
    if old is not None and fuzz_regressions is not None:
        raise UsageError("regressions are looked for between two models; name the old one itself as --baseline")
    if old is not None and time is not None:
        raise UsageError(
            f"with --time only some inputs are done, run {old.name} has all of them; name the old model as --baseline"
        )
    if run_named(subject) is not None:
        raise UsageError(f"{subject} is a run and has its data already; leave --data out, or name its model")
    # Where a budget may end first, the inputs done are to be a sample of all, not the first classes of a folder.
    part = time is not None or (queries is not None and old is None)
    measuring = Measuring.of(
        requirement,
        suite,
        eps,
        saves=save is not None,
        timed=part,
        norm=norm or "linf",
        seed=seed,
        ignore=ignore,
        deterministic=deterministic,
        loading=loading,
        progress=progress,
        memory=memory,
        cluster=cluster,
    )
    work = _Work(subject, baseline, inputs_of(data, size, subject, shuffled=seed if part else None), measuring, rules)
    rows, pieces = list[GateRow](), Pieces()
    if requirement is not None:
        limit = None if time is None else seconds(time)
        # One cluster for both models; clean numbers alone need none.
        with nullcontext() if cluster is None or not measuring.attacked else connected(cluster):
            rows += work.measured(requirement, pieces, limit, {"save": save, "fresh": fresh})
    work.regressions(rows, pieces, regressions, allow_regressions)
    if fuzz_regressions is not None:
        name = None if save is None else f"{save}-regressions"
        work.fuzzed(rows, pieces, fuzz_regressions, allow_regressions, name)
    return work.gate(require, rows, pieces, clock.monotonic() - began)


@dataclass(frozen=True, slots=True)
class _Work:
    """A model against a requirement."""

    subject: Model
    baseline: Model | None
    data: Data
    measuring: Measuring
    rules: Rules

    @property
    def place(self) -> str:
        return place_of(self.data.source or self.data.name, self.subject)

    def measured(
        self, requirement: Requirement, pieces: Pieces, limit: float | None, keep: dict[str, Any]
    ) -> list[GateRow]:
        """The rows of the requirement; with a time limit, half of it is the baseline's."""
        old = run_named(self.baseline)
        half = limit if limit is None or self.baseline is None or old is not None else limit / 2
        time = {} if half is None else {"time": half}
        drop = next((clause for clause in requirement.clauses if clause.drop), None)
        if drop is not None and self.baseline is None:  # told before any work is done
            raise UsageError(f"{drop} is a difference to an older model: {BASELINE}")
        saving = {name: value for name, value in keep.items() if value}
        side, result = self.measuring.side(self.subject, name_of(self.subject), self.data, **saving, **time)
        other = self._other(side, old, requirement, time)
        n = len(side.right["clean"]) if other is None else min(len(side.right["clean"]), len(other.right["clean"]))
        side, other = side.first(n), None if other is None else other.first(n)
        pieces.side, pieces.other = side, other
        self._show(pieces, result)
        return trusted(held_against(requirement, side, other, self.rules, missing=BASELINE), side, other)

    def _other(self, side: Side, old: Store | None, requirement: Requirement, time: dict[str, float]) -> Side | None:
        if self.baseline is None:
            return None
        if old is not None:
            other = side_of_saved(saved_in(old), requirement)
            refuse_unlike(side, other)
            return other.as_baseline()
        same = first_of(self.data, len(side.right["clean"]))
        other, _ = self.measuring.side(self.baseline, name_of(self.baseline, "the baseline"), same, **time)
        return other.as_baseline()

    def _show(self, pieces: Pieces, result: Evaluation | None) -> None:
        side, other = pieces.side, pieces.other
        assert side is not None  # it was measured just now
        if result is not None:
            pieces.run = result.run
            cases = result.examples if result.run is None else examples_of(result.run)
            fooled = fooling(cases, list(result.protocol["attacks"]), result.classes, self.place)
            worked = set(self.data.cases.origin[: len(side.right["clean"])].tolist())
            pieces.add(
                [failure for failure in fooled if failure.row in worked],
                side.shares["clean"].right - side.shares["robust"].right,
            )
        if other is not None:
            lost = int((other.right["clean"] & ~side.right["clean"]).sum())
            pieces.add(newly_wrong(side, other, self.data.cases, self.place), lost)

    def regressions(self, rows: list[GateRow], pieces: Pieces, runs: Sequence[str], allowed: int) -> None:
        """Old failures asked again."""
        told = asked_again(runs, self.subject, self.data, self.measuring.loading, self.measuring.progress)
        if told is not None:
            rows.append(old_row(told, allowed))
            pieces.add(still_failing(told), int(rows[-1].value or 0))

    def fuzzed(self, rows: list[GateRow], pieces: Pieces, time: str | float, allowed: int, run: str | None) -> None:
        """New ones looked for."""
        assert self.baseline is not None  # refused before
        how, (side, other) = self.measuring, self._as_they_are(pieces)
        lost = int((other.right["clean"] & ~side.right["clean"]).sum())
        row, failures, pieces.fuzzed = fuzzed(
            self.subject,
            self.baseline,
            self.data,
            eps=how.eps,
            norm=how.norm,
            time=time,
            allowed=allowed,
            run=run,
            seed=how.seed,
            place=self.place,
            loading=how.loading,
            progress=how.progress,
            deterministic=how.deterministic,
            lost=lost,
        )
        rows.append(row)
        if side is not pieces.side:  # else they are named already; those of a time budget are the first of them
            named = sum(failure.kind == "regression" and not failure.attack for failure in pieces.failures)
            pieces.add(newly_wrong(side, other, self.data.cases, self.place)[named:], lost - named)
        pieces.add(failures, int(row.value or 0) - lost)

    def _as_they_are(self, pieces: Pieces) -> tuple[Side, Side]:
        """Both models on every input without a change; what was measured already is taken."""
        assert self.baseline is not None  # refused before
        side, other = pieces.side, pieces.other
        if side is not None and other is not None and len(side.right["clean"]) == len(self.data):
            return side, other
        how = replace(self.measuring, requirement=None, labels={}, attacked=False)
        side, _ = how.side(self.subject, name_of(self.subject), self.data)
        other, _ = how.side(self.baseline, name_of(self.baseline, "the baseline"), self.data)
        return side, other

    def gate(self, require: str, rows: list[GateRow], pieces: Pieces, took: float) -> Gate:
        base = None if self.baseline is None else name_of(self.baseline, "the baseline")
        return pieces.gate(name_of(self.subject), require, rows, self.rules, took, base)
