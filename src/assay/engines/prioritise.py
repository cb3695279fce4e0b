"""Prioritising: which tests to label first, so that those the model gets wrong come early."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from assay.core import store
from assay.core.cases import UNLABELLED, Cases, InputSpec
from assay.core.errors import AssayError, UsageError
from assay.core.randomness import Stream
from assay.core.registry import names
from assay.core.specs import canonical, sliced
from assay.core.units import count
from assay.engines.prioritisers import Method, methods_of, observer_for, parts_of
from assay.engines.ranking_measures import Chance, Measures, chance, measured
from assay.engines.run_target import Model
from assay.engines.session import session
from assay.engines.stored import class_names, identity_of, pool_of, stored_cases
from assay.stages.selectors.ranking import checked, ranked, scored
from assay.subjects.bench import Bench, Data, fitted
from assay.subjects.data.load import load_data, training_of
from assay.subjects.sources.load import load_target
from assay.subjects.target import Target, require

log = logging.getLogger("assay")

Progress = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Ordered:
    """The pool in the order of one method: ``order`` (n,) rows, most suspect first, ``score`` (n,) of the rows.

    Where the method cannot be used on this model ``why_not`` says why, and there is no order.
    """

    by: str
    text: str
    order: Tensor | None = None
    score: Tensor | None = None
    measures: Measures | None = None
    seconds: float = 0.0
    why_not: str = ""

    def to_json(self, k: int) -> dict[str, Any]:
        if self.order is None:
            return {"by": self.by, "text": self.text, "why_not": self.why_not}
        told = {"by": self.by, "text": self.text, "seconds": round(self.seconds, 3), "rows": self.order[:k].tolist()}
        return told | ({} if self.measures is None else self.measures.to_json())


@dataclass(frozen=True, slots=True)
class Prioritised:
    """A pool in the order of each method; ``chance`` is what random orders reach, ``as_it_stands`` what the pool's own
    order does, which decides between cases that a method finds equal; both None where nothing has a label.

    Measures are of the ``labelled`` cases of the pool, of which the model gets ``faults`` wrong. ``seconds`` are those
    of the forward pass that all methods share.
    """

    model: str
    fingerprint: str
    pool: Data
    predicted: Tensor
    classes: tuple[str, ...]
    methods: tuple[Ordered, ...]
    chance: Chance | None
    as_it_stands: Measures | None
    labelled: int
    faults: int
    k: int
    layers: str
    training: str
    seed: int
    seconds: float

    def __len__(self) -> int:
        return len(self.pool)

    def __repr__(self) -> str:
        return f"<{len(self)} cases of {self.pool.name} by {', '.join(method.by for method in self.methods)}>"

    def __getitem__(self, by: str) -> Ordered:
        return next(method for method in self.methods if by in (method.by, method.text))

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "model_fingerprint": self.fingerprint,
            "pool": self.pool.name,
            "n": len(self),
            "labelled": self.labelled,
            "faults": self.faults,
            "fault_share": round(self.faults / self.labelled, 6) if self.labelled else None,
            "k": self.k,
            "layers": self.layers,
            "training": self.training or None,
            "seed": self.seed,
            "forward_seconds": round(self.seconds, 3),
            "methods": [method.to_json(self.k) for method in self.methods],
            "random": None if self.chance is None else self.chance.to_json(),
            "as_it_stands": None if self.as_it_stands is None else self.as_it_stands.to_json(),
        }


def prioritise(
    model: Model,
    pool: str | Path | Data,
    *,
    by: str | Sequence[str] = "gini",
    k: int | str = "10%",
    training: str | Data | None = None,
    layers: str | None = None,
    static: bool = False,
    seed: int = 0,
    device: str = "auto",
    size: str = "",
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    progress: Progress | None = None,
) -> Prioritised:
    """The tests of a pool in the order in which they should be looked at, by one or several methods.

    ``pool`` is data, or a run, of whose saved examples all are taken, those that fool nobody too (``static``: those
    made on another model). ``by`` names scores and selectors; ``all`` stands for those of the 2022 replication. The
    first ``k`` are what there is time to look at. ``training`` are the data the model was trained with, for methods
    that compare with them: the training part of the pool's own data set where it is not given. No method sees labels.
    Tests that the model answers with NaN or infinity come first in every order.
    """
    count(k, 100, "-k")  # before the work, not after it
    methods = methods_of(by, layers, seed)
    given = _pool(pool, static=static, size=size)
    target = load_target(model, data=given, device=device, mean=mean, std=std)
    given = fitted(target, given)
    known = _training(methods, given, training, target, size)
    number = min(count(k, len(given), "-k"), len(given))
    with session(), target.ready():
        observer = observer_for(methods, target)
        bench = Bench(target, observer=observer, training=known)
        seen = _look(bench, given)
        done: list[Ordered] = []
        for method in methods:
            if progress is not None:
                progress({"done": len(done), "of": len(methods), "by": method.by})
            order = _ordered(bench, seen, method, seed, alone=len(methods) == 1)
            done.append(_measured(order, seen, number))
    failing = seen.wrong[seen.labelled]
    return Prioritised(
        model=model if isinstance(model, str) else "module",
        fingerprint=target.fingerprint(),
        pool=given,
        predicted=seen.cases.y,
        classes=target.spec.classes,
        methods=tuple(done),
        chance=chance(failing, number, Stream(seed, ("prioritise", "chance"))) if len(failing) else None,
        as_it_stands=measured(failing, number) if len(failing) else None,
        labelled=len(failing),
        faults=int(failing.sum()),
        k=number,
        layers=observer.text() if observer.neurons else "",
        training="" if known is None else known.name,
        seed=seed,
        seconds=seen.seconds,
    )


class _Looked(NamedTuple):
    """The pool as methods get it, which answers are no finite numbers, which cases the model gets wrong and which have
    labels, (n,) each.
    """

    cases: Cases
    broken: Tensor
    wrong: Tensor
    labelled: Tensor
    seconds: float


def _look(bench: Bench, pool: Data) -> _Looked:
    """The one forward pass that all methods share."""
    began = time.perf_counter()
    cases = bench.observed(Cases.of(pool.cases.x))
    logits = cases.info["logits"]
    predicted, broken = logits.argmax(1).cpu(), ~logits.isfinite().all(1).cpu()
    seconds = time.perf_counter() - began
    # Labels are what prioritising does without: a method that asks for them gets the model's own answer. Of what a run
    # noted of its cases only seeds are kept: scores were those of its own model, which need not be this one.
    seeds = {name: column for name, column in pool.cases.info.items() if name == "seed_x"}
    hidden = replace(cases, y=predicted).note(**seeds)
    y = pool.cases.y
    return _Looked(hidden, broken, (predicted != y) | broken, y != UNLABELLED, seconds)


def _ordered(bench: Bench, seen: _Looked, method: Method, seed: int, *, alone: bool) -> Ordered:
    """The order of one method, broken answers first; one that does not apply is refused only where it is ``alone``.

    An answer that is no finite number is a fault whatever the label, and most scores of it are NaN, which ranks last.
    """
    stage, told, cases = method.stage, Ordered(method.by, method.stage.text), seen.cases
    began, score = time.perf_counter(), None
    try:
        require(bench.target, stage.entry.needs, f"{stage.entry.kind} {stage.entry.name!r}")
        if method.scores:
            score = scored(bench, cases, stage.text, None, "")
            order = ranked(score, largest=True)
        else:
            made = stage(bench, cases, len(cases), rng=Stream(seed, ("prioritise", stage.text)))
            order = checked(made, len(cases), len(cases), stage.entry.name)
    except UsageError as error:
        if alone:
            raise
        return replace(told, why_not=str(error))
    order = order[(~seen.broken[order]).long().argsort(stable=True)]
    return replace(told, order=order, score=score, seconds=time.perf_counter() - began)


def _measured(told: Ordered, seen: _Looked, k: int) -> Ordered:
    """The same with its measures, over the cases that have labels."""
    if told.order is None or not bool(seen.labelled.any()):
        return told
    order = told.order[seen.labelled[told.order]]
    return replace(told, measures=measured(seen.wrong[order], k))


def _pool(pool: str | Path | Data, *, static: bool, size: str) -> Data:
    """The pool; its source is the text of the data that it is, or was made, of."""
    if isinstance(pool, Data) or (isinstance(pool, str) and _is_data(pool)):
        if static:
            raise UsageError("--static is for a saved evaluation; the pool is data")
        return load_data(pool, part="test", size=size)
    run = store.read(store.find_run(pool))
    every = stored_cases(run)
    cases = every[pool_of(run, every, every=True, static=static).rows]
    spec = InputSpec(tuple(cases.x.shape[1:]), (0.0, 1.0), class_names(run, every))
    return Data(f"run {run.name}", cases, spec, str(identity_of(run).get("data", {}).get("spec", "")))


def _is_data(text: str) -> bool:
    """Whether a text names data rather than a run."""
    name = sliced(text)[0]
    known = canonical(name.partition("/")[0]) in map(canonical, names("data"))
    return known or name.startswith("dir:") or ".npz" in name


def _training(
    methods: Sequence[Method], pool: Data, given: str | Data | None, target: Target, size: str
) -> Data | None:
    """What the target was trained with, as far as it is told or known; None where no method could ask for it."""
    parts = [part for method in methods for part in parts_of(method.stage)]
    if not any(part.entry.kind == "criterion" or "activation" in part.entry.needs for part in parts):
        return None
    try:
        known = training_of(pool, given, size=size)
    except AssayError as error:  # a run may outlive its data
        if given is not None:
            raise
        log.warning("the training data of %s are not found: %s; give --training", pool.name, error)
        return None
    return None if known is None else fitted(target, known)
