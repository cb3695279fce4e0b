"""Putting a pool of tests in the orders of several methods, asking the model as little as they allow."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from assay.core.cases import UNLABELLED, Cases
from assay.core.errors import BudgetSpent, UsageError
from assay.core.randomness import Stream
from assay.engines.prioritisers import Method, parts_of
from assay.engines.ranking_measures import Measures, measured
from assay.engines.scoring import Given, Scoring, looked
from assay.stages.selectors.ranking import checked, ranked, scored
from assay.stages.stand_in import StandIn
from assay.subjects.asked import Asked
from assay.subjects.bench import Bench, Data
from assay.subjects.target import START, answer, require

Progress = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Ordered:
    """The pool in the order of one method: ``order`` (n,) rows, most suspect first, ``score`` (n,) of the rows.

    Where the method cannot be used on this model ``why_not`` says why, and there is no order. ``facts`` are what the
    method tells of its work; ``stand_in`` are the labels that its stand-in gives the pool, where it has one.
    """

    by: str
    text: str
    order: Tensor | None = None
    score: Tensor | None = None
    measures: Measures | None = None
    seconds: float = 0.0
    why_not: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    stand_in: Tensor | None = None

    def to_json(self, k: int) -> dict[str, Any]:
        if self.order is None:
            return {"by": self.by, "text": self.text, "why_not": self.why_not}
        told = {"by": self.by, "text": self.text, "seconds": round(self.seconds, 3), "rows": self.order[:k].tolist()}
        told |= {"facts": dict(self.facts)} if self.facts else {}
        return told | ({} if self.measures is None else self.measures.to_json())


class Looked(NamedTuple):
    """The pool as methods get it, which answers are no finite numbers, which cases the model gets wrong and which have
    labels, (n,) each.
    """

    cases: Cases
    broken: Tensor
    wrong: Tensor
    labelled: Tensor
    seconds: float


class Ordering:
    """The work on one pool: ``done`` are the orders so far, ``seen`` the model's answers where it was asked."""

    def __init__(
        self,
        bench: Bench,
        pool: Data,
        methods: Sequence[Method],
        seed: int,
        progress: Progress | None = None,
        elsewhere: Scoring | None = None,
    ) -> None:
        self.bench, self.pool, self.methods, self.seed = bench, pool, methods, seed
        self.progress = progress or (lambda _: None)
        self.elsewhere = elsewhere
        self.given: dict[str, Given] = {}  # scores that workers have given, by the text of their stage
        self.seen: Looked | None = None
        self.complete = True
        self.notes: list[str] = []
        self.done: list[Ordered] = []
        self.refused: dict[str, Ordered] = {}
        self.begun = 0
        self.unknown = torch.full((len(pool),), UNLABELLED)

    def rehearse(self) -> None:
        """Find out which methods cannot be used here, before the model is asked or anything is written."""
        self.refused = {m.stage.text: refused for m in self.methods if (refused := self._refused(m)) is not None}

    def all(self, k: int, *, measure: bool) -> None:
        """Every order, measured by its first ``k`` where labels and the model's answers are known."""
        orders, self.begun = dict(self.refused), len(self.refused)
        fitting = [method for method in self.methods if method.stage.text not in orders]
        # Methods with a stand-in first: they leave of a budget what the others need.
        first = [method for method in fitting if not looks(method)]
        orders |= {method.stage.text: self._one(method, self._unseen()) for method in first}
        others = [method for method in fitting if looks(method)]
        self._look(others, measure=measure)
        orders |= {method.stage.text: self._one(method, None) for method in others}
        self.done = [self._measured(orders[method.stage.text], k) for method in self.methods]

    def _refused(self, method: Method) -> Ordered | None:
        """Why a method cannot be used on this model, before it is asked anything; None where it can."""
        stage = method.stage
        try:
            for part in parts_of(stage):
                needs = set(part.entry.needs) - {START}
                require(self.bench.target, needs, f"{stage.entry.kind} {stage.entry.name!r}")
            if START in stage.entry.needs:  # no cases are no work, but parameters are looked at
                stage(self.bench, self._unseen()[:0], 0, rng=Stream(self.seed))
        except UsageError as error:
            if len(self.methods) == 1:
                raise
            return Ordered(method.by, stage.text, why_not=str(error))
        return None

    def _one(self, method: Method, unseen: Cases | None) -> Ordered:
        """The order of one method: of cases nobody has ``unseen``, or of those the model was asked about."""
        told = Ordered(method.by, method.stage.text)
        if unseen is None and self.seen is None:
            return replace(told, why_not="the budget of queries was spent before the model was asked about all tests")
        self.progress({"done": self.begun, "of": len(self.methods), "by": method.by})
        self.begun += 1
        cases = unseen if self.seen is None else self.seen.cases
        assert cases is not None
        self.bench.told()  # what was told before was of another method
        try:
            return self._ordered(method, cases, told)
        except BudgetSpent as spent:
            self.complete = False
            return replace(told, why_not=str(spent))
        except UsageError as error:
            if len(self.methods) == 1:
                raise
            return replace(told, why_not=str(error))

    def _ordered(self, method: Method, cases: Cases, told: Ordered) -> Ordered:
        stage, bench, score, began = method.stage, self.bench, None, time.perf_counter()
        given = self.given.get(stage.text)
        if given is not None:
            if given.why_not is not None:
                raise given.why_not
            assert given.score is not None
            facts, order = given.facts or {}, ranked(given.score, largest=True)
            return replace(told, order=order, score=given.score, seconds=given.seconds, facts=facts)
        if method.scores:
            score = scored(bench, cases, stage.text, None, "")
            order = ranked(score, largest=True)
        else:
            made = stage(bench, cases, len(cases), rng=Stream(self.seed, ("prioritise", stage.text)))
            order = checked(made, len(cases), len(cases), stage.entry.name)
        seconds = time.perf_counter() - began
        subject: StandIn | None = bench.kept.pop("stand-in", None)
        labels = None if subject is None else answer(subject.target, cases.x, bench.chunks).argmax(1).cpu()
        if subject is not None and subject.cut:
            self.complete = False
        return replace(told, order=order, score=score, seconds=seconds, facts=bench.told(), stand_in=labels)

    def _unseen(self) -> Cases:
        """The pool without labels or answers."""
        return Cases.of(self.pool.cases.x).note(**self._seeds())

    def _seeds(self) -> dict[str, Tensor]:
        # Of what a run noted of its cases only seeds are kept: scores were those of its own model, which need not be
        # this one.
        return {name: column for name, column in self.pool.cases.info.items() if name == "seed_x"}

    def _look(self, methods: Sequence[Method], *, measure: bool) -> None:
        """The one forward pass that all methods share; a black box is asked only for what there is a use for."""
        target = self.bench.target
        if isinstance(target, Asked) and not methods:
            wanted, left = target.unknown(self.pool.cases.x), target.affordable()
            if not measure or not bool((self.pool.cases.y != UNLABELLED).any()):
                return
            if left is not None and wanted > left:
                self.notes.append(
                    f"orders are not measured: that takes {wanted} more answers, and the budget has {left} left"
                )
                return
        try:
            self.seen = self._looked(methods)
        except BudgetSpent as spent:
            self.complete = False
            self.notes.append(str(spent))

    def _looked(self, methods: Sequence[Method]) -> Looked:
        began = time.perf_counter()
        if self.elsewhere is None:
            cases = looked(self.bench, Cases.of(self.pool.cases.x))
            seconds = None
        else:
            cases, seconds = self._looked_elsewhere(self.elsewhere, methods)
        predicted, broken = cases.y, ~cases.info["logits"].isfinite().all(1).cpu()
        hidden, y = cases.note(**self._seeds()), self.pool.cases.y
        taken = time.perf_counter() - began if seconds is None else seconds
        return Looked(hidden, broken, (predicted != y) | broken, y != UNLABELLED, taken)

    def _looked_elsewhere(self, elsewhere: Scoring, methods: Sequence[Method]) -> tuple[Cases, float]:
        """The same on a cluster, with every score; seconds are those of all workers."""
        own = [method.by for method in methods if not method.scores]
        if own:
            self.notes.append(f"put in order by one process, for that cannot be split: {', '.join(own)}")

        def tell(done: int, workers: Mapping[str, int]) -> None:
            by = f"{done} of {len(self.pool)} tests looked at, {workers['workers']} of {workers['wanted']} workers"
            self.progress({"done": self.begun, "of": len(self.methods), "by": by, "workers": workers})

        stages = [method.stage for method in methods if method.scores]
        columns, self.given, seconds = elsewhere.all(self.bench, self._unseen(), stages, whole=bool(own), tell=tell)
        cases = Cases.of(self.pool.cases.x).note(**columns)
        return replace(cases, y=columns["logits"].argmax(1).cpu()), seconds

    def _measured(self, told: Ordered, k: int) -> Ordered:
        """The same, broken answers first, with its measures over the cases that have labels.

        An answer that is no finite number is a fault whatever the label, and most scores of it are NaN, which ranks
        last.
        """
        if told.order is None or self.seen is None:
            return told
        seen = self.seen
        order = told.order[(~seen.broken[told.order]).long().argsort(stable=True)]
        facts = dict(told.facts)
        if told.stand_in is not None:
            facts["pool_agreement"] = round(float((told.stand_in == seen.cases.y).double().mean()), 6)
        told = replace(told, order=order, facts=facts)
        if not bool(seen.labelled.any()):
            return told
        return replace(told, measures=measured(seen.wrong[order[seen.labelled[order]]], k))


def looks(method: Method) -> bool:
    """Whether a method goes by the model's answers about the pool, or only by those of a stand-in."""
    needs = set(method.stage.entry.needs)
    if START in needs:
        return "prob" in needs
    return method.stage.from_file or any(part.entry.needs for part in parts_of(method.stage))
