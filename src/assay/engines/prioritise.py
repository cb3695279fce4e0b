"""Prioritising: which tests to label first, so that those the model gets wrong come early."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from assay.core import environment, store
from assay.core.cases import UNLABELLED
from assay.core.deadline import limited
from assay.core.files import canonical_json
from assay.core.places import known_as
from assay.core.randomness import Stream
from assay.core.store import Store
from assay.core.units import count
from assay.engines.asking import answers_in, asked_of, how_to_ask, keep_answers
from assay.engines.cluster import Cluster, cluster_of
from assay.engines.jobs import refuse_black_box
from assay.engines.once_more import once_more
from assay.engines.ordering import Ordered, Ordering, Progress
from assay.engines.pool import check_travels
from assay.engines.pools import pool_given, training_for
from assay.engines.prioritisers import Method, methods_of, observer_for
from assay.engines.ranking_measures import Chance, Measures, chance, measured
from assay.engines.run_target import Model
from assay.engines.scoring import Scoring
from assay.engines.session import session
from assay.subjects.bench import Bench, Data, fitted
from assay.subjects.sources.hub import pinned
from assay.subjects.sources.load import load_target
from assay.subjects.target import Target

_FAR = ("http://", "https://", "cmd:")  # targets whose answers are worth a run even where nobody named one


@dataclass(frozen=True, slots=True)
class Prioritised:
    """A pool in the order of each method; ``chance`` is what random orders reach, ``as_it_stands`` what the pool's own
    order does, which decides between cases that a method finds equal; both None where nothing has a label.

    Measures are of the ``labelled`` cases of the pool, of which the model gets ``faults`` wrong. ``seconds`` are those
    of the forward pass that all methods share. ``queries`` counts what a target that only answers was asked; where the
    budget ended before the work did, ``complete`` is False, and the same call with a larger one goes on. ``run`` is the
    folder that keeps the answers.
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
    complete: bool = True
    queries: Mapping[str, Any] | None = None
    run: Path | None = None
    notes: tuple[str, ...] = field(default=())
    wrong: Tensor | None = None  # (n,) which labelled tests the model gets wrong; None where it was not asked

    def __len__(self) -> int:
        return len(self.pool)

    @property
    def measured(self) -> bool:
        """Whether labels and the model's answers are known, so that orders have measures."""
        return self.chance is not None

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
            "faults": self.faults if self.measured else None,
            "fault_share": round(self.faults / self.labelled, 6) if self.labelled else None,
            "k": self.k,
            "layers": self.layers,
            "training": self.training or None,
            "seed": self.seed,
            "forward_seconds": round(self.seconds, 3),
            "methods": [method.to_json(self.k) for method in self.methods],
            "random": None if self.chance is None else self.chance.to_json(),
            "as_it_stands": None if self.as_it_stands is None else self.as_it_stands.to_json(),
            "complete": self.complete,
            "queries": None if self.queries is None else dict(self.queries),
            "run": None if self.run is None else known_as(self.run),
            "notes": list(self.notes),
        }


@limited
def prioritise(
    model: Model,
    pool: str | Path | Data,
    *,
    by: str | Sequence[str] = "gini",
    k: int | str = "10%",
    training: str | Data | None = None,
    layers: str | None = None,
    static: bool = False,
    measure: bool = True,
    queries: int | None = None,
    ask: str = "",
    white_box: bool = False,
    run: str | None = None,
    fresh: bool = False,
    seed: int = 0,
    device: str = "auto",
    size: str = "",
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    call_timeout: str | float | None = None,
    deterministic: bool = False,
    ray: str | Cluster | None = None,
    workers: int | None = None,
    gpu_share: float | None = None,
    progress: Progress | None = None,
) -> Prioritised:
    """The tests of a pool in the order in which they should be looked at, by one or several methods.

    ``pool`` is data, or a run, of whose saved examples all are taken, those that fool nobody too (``static``: those
    made on another model). ``by`` names scores and selectors; ``all`` stands for those of the 2022 replication. The
    first ``k`` are what there is time to look at. ``training`` are the data the model was trained with, for methods
    that compare with them: the training part of the pool's own data set where it is not given. No method sees labels.
    Tests that the model answers with NaN or infinity come first in every order.

    A model that only answers is asked no more than it takes, and never more than ``queries`` times; ``ask`` says how
    ("rate=50, repeats=3"). Methods that work through a stand-in do not ask it about the pool: where labels are known it
    is asked last, to measure them, if ``measure`` and the budget allow it. ``run`` names the folder that keeps the
    answers: the same call again asks nothing twice. A call of the model that takes longer than ``call_timeout`` fails.

    With ``ray`` (local, auto or an address) the pool is looked at and scored by ``workers`` of a Ray cluster, each with
    a ``gpu_share`` of a GPU where the model is on one; seconds are then summed over them. What is fitted to training
    data is fitted here, and selectors, which see all tests together, choose here.
    """
    cluster = cluster_of(ray, workers, gpu_share)
    if cluster is not None:
        refuse_black_box(model, queries, ask, white_box=white_box)
    count(k, 100, "-k")  # before the work, not after it
    methods = methods_of(by, layers, seed)
    model = pinned(model)
    given, kept_in = pool_given(pool, static=static, size=size, like=model)
    target = load_target(
        model,
        data=given,
        device=device,
        mean=mean,
        std=std,
        queries=queries,
        ask=ask,
        white_box=white_box,
        answers=answers_in(run, fresh=fresh),
    )
    if cluster is not None:
        check_travels(target)
    given = fitted(target, given)
    known = training_for(methods, given, kept_in, training, target, size)
    number = min(count(k, len(given), "-k"), len(given))
    with ExitStack() as open_for_work:
        open_for_work.enter_context(session(deterministic=deterministic))
        open_for_work.enter_context(target.ready())
        observer = observer_for(methods, target)
        bench = Bench(target, observer=observer, training=known)
        elsewhere = None if cluster is None else Scoring(cluster, deterministic)
        work = Ordering(bench, given, methods, seed, progress, elsewhere)
        work.rehearse()
        kept = None
        if run is not None or queries is not None or (isinstance(model, str) and model.startswith(_FAR)):
            config = _config(model, target, given, methods, known, seed) | how_to_ask(ask, queries)
            kept = open_for_work.enter_context(store.opened(run, config, environment.describe(), fresh=fresh))
            keep_answers(target, kept.path)
        once_more(lambda: work.all(number, measure=measure), "while tests were put in order", work.notes.clear)
        result = _told(work, model, number, kept)
        if kept is not None:
            _keep(kept, result)
    return result


def _told(work: Ordering, model: Model, number: int, kept: Store | None) -> Prioritised:
    """What came of it."""
    target, seen, observer = work.bench.target, work.seen, work.bench.observer
    failing = seen.wrong[seen.labelled] if seen is not None else work.unknown[:0].bool()
    return Prioritised(
        model=model if isinstance(model, str) else "module",
        fingerprint=target.fingerprint(),
        pool=work.pool,
        predicted=work.unknown if seen is None else seen.cases.y,
        classes=target.spec.classes,
        methods=tuple(work.done),
        chance=chance(failing, number, Stream(work.seed, ("prioritise", "chance"))) if len(failing) else None,
        as_it_stands=measured(failing, number) if len(failing) else None,
        labelled=len(failing),
        faults=int(failing.sum()),
        k=number,
        layers=observer.text() if observer is not None and observer.neurons else "",
        training="" if work.bench.training is None else work.bench.training.name,
        seed=work.seed,
        seconds=0.0 if seen is None else seen.seconds,
        complete=work.complete,
        queries=asked_of(target),
        run=None if kept is None else kept.path,
        notes=tuple(work.notes),
        wrong=None if seen is None else seen.wrong & seen.labelled,
    )


def _config(
    model: Model, target: Target, pool: Data, methods: Sequence[Method], known: Data | None, seed: int
) -> dict[str, dict[str, Any]]:
    """What makes two prioritisations the same. A budget is none of it: with a larger one the same run goes on."""
    return {
        "run": {"kind": "prioritise", "seed": seed, "by": [method.stage.text for method in methods]},
        "target": {"model": model if isinstance(model, str) else "module", "fingerprint": target.fingerprint()},
        "data": {"spec": pool.name, "fingerprint": pool.fingerprint()},
        "training": {"spec": "", "fingerprint": ""}
        if known is None
        else {"spec": known.name, "fingerprint": known.fingerprint()},
    }


def _keep(kept: Store, result: Prioritised) -> None:
    """The orders in the run, beside those of earlier calls with other budgets."""
    facts = {key: value for key, value in result.to_json().items() if key != "run"}  # a run may be moved
    whole = [method.to_json(len(result)) for method in result.methods]
    rows = {} if result.wrong is None else {"wrong_rows": result.wrong.nonzero().flatten().tolist()}
    rows |= {"unlabelled_rows": (result.pool.cases.y == UNLABELLED).nonzero().flatten().tolist()} if rows else {}
    content = canonical_json({**facts, "methods": whole, **rows}).encode()
    number = sum(1 for _ in kept.commits("orders")) + 1
    kept.commit({f"state/orders-{number:03d}.json": content}, kind="orders", complete=result.complete)
    kept.write_stats({"complete": result.complete, "queries": result.queries})
