"""Selection: the cases of a run worth most, picked by any selector and kept in the run."""

import functools
import logging
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.core import store
from assay.core.cases import Cases
from assay.core.deadline import limited
from assay.core.errors import AssayError, NothingToTest, UsageError
from assay.core.files import sha256
from assay.core.randomness import Stream
from assay.core.registry import Bound, bind
from assay.core.shards import decode, encode
from assay.core.specs import Step, python_file, step
from assay.core.store import Store
from assay.core.units import count
from assay.engines.kinds import SAME_KIND, one_of_each
from assay.engines.run_target import Deferred, Model, target_of
from assay.engines.session import session
from assay.engines.stored import Pool, class_names, fails_in, identity_of, kind_of, named_by_run, pool_of, stored_cases
from assay.recipes.recipe import ball_of
from assay.stages.selectors.ranking import checked, scored
from assay.subjects.bench import Bench, Data, fitted
from assay.subjects.data.load import load_data, training_of
from assay.subjects.target import START, Target, require

log = logging.getLogger("assay")


@dataclass(frozen=True, slots=True)
class Selection:
    """What a selector picked from ``of`` cases of a run; ``score`` names the column it went by, if any.

    ``dropped`` says how many other cases the run holds, by the reason for which they were not looked at; ``said`` is
    what the selector says of its work.
    """

    run: Path
    number: int
    by: str
    k: int
    cases: Cases
    of: int
    dropped: dict[str, int]
    score: str
    classes: tuple[str, ...]
    new: bool
    said: dict[str, Any]

    @property
    def file(self) -> str:
        return _file(self.number)

    def __len__(self) -> int:
        return len(self.cases)

    def __repr__(self) -> str:
        return f"<{len(self)} of {self.of} cases of {self.run.name} by {self.by}>"


@limited
def select(
    run: str | Path,
    *,
    by: Step,
    k: int | str,
    every: bool = False,
    static: bool = False,
    distinct: bool = False,
    model: Model | None = None,
    data: str | Data | None = None,
    training: str | Data | None = None,
    eps: str | float | None = None,
    norm: str | None = None,
    seed: int = 0,
    device: str = "auto",
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    queries: int | None = None,
    ask: str = "",
    white_box: bool = False,
    call_timeout: str | float | None = None,
) -> Selection:
    """The ``k`` cases of a run that a selector picks, in its order; all of them where there are fewer.

    ``k`` is a number, or a share such as ``10%`` of the cases to pick from: those that fail. Of a saved evaluation
    ``every`` takes the examples that fool nobody too, and ``static`` those made on another model, which are left out
    otherwise. ``distinct`` leaves one case of each kind to pick from, the one with the smallest change. The model is
    the run's own (of a hardening the original one) unless another is given, and is loaded only
    where the selector asks it. The selection is kept in the run; the same call again reads it from there. ``data`` are
    those of a saved evaluation, where its text does not find them: the seeds of its examples and the classes of a bare
    net. ``training`` are those the model was trained with, for selectors and scores that compare with them: the
    training part of the run's data set where they are not given. ``queries`` is the most inputs that the model may be
    sent, ``ask`` says how ("rate=50, repeats=3"), ``white_box`` opens an ONNX file. A call of the model that takes
    longer than ``call_timeout`` ends it.
    """
    count(k, 100, "-k")  # before the work, not after it
    chosen = bind("selector", *step(by), ball_of(eps, norm))
    with store.continued(store.find_run(run)) as folder, session():
        cases = stored_cases(folder)
        pool = pool_of(folder, cases, every=every, static=static)
        if "seed_x" not in cases.info and (distinct or _goes_by_score(chosen)):
            cases = with_seeds(folder, cases, data)
        if distinct:
            pool = _distinct(folder, cases, pool)
        asking: dict[str, Any] = {"queries": queries, "ask": ask, "white_box": white_box}
        target = target_of(folder, cases, model, data=data, device=device, mean=mean, std=std, **asking)
        if chosen.entry.needs:
            require(target, set(chosen.entry.needs) - {START}, f"selector {chosen.entry.name!r}")
        told = "" if model is None else target.fingerprint()
        bench = _bench(folder, target, chosen, cases, training)
        known = None if training is None or bench.training is None else bench.training.fingerprint()
        asked = {"k": count(k, len(pool.rows), "-k"), "seed": seed, "model": told, "training": known}
        asked |= {"asking": asking if any(asking.values()) else None}  # a budget may have cut its work short
        asked |= {"distinct": distinct or None}
        return _selected(folder, bench, cases, pool, chosen, asked)


def _distinct(run: Store, cases: Cases, pool: Pool) -> Pool:
    """One case of each kind; those of a pool that do not fail are of none."""
    some = cases[pool.rows]
    rows = fails_in(run, some).nonzero().squeeze(1)
    if not len(rows):
        raise NothingToTest(f"no case of run {run.name} fails, so that there are no kinds to pick from")
    kept = pool.rows[rows[one_of_each(some[rows])]].sort().values
    counts = {"not failing": len(some) - len(rows), SAME_KIND: len(rows) - len(kept)}
    more = {reason: pool.dropped.get(reason, 0) + count for reason, count in counts.items() if count}
    return Pool(kept, pool.dropped | more)


def _bench(run: Store, target: Target, chosen: Bound, cases: Cases, training: str | Data | None) -> Bench:
    """The target; where the selector or its score looks inside it, or begins with inputs of its own, the model itself
    and what it was trained with.
    """
    needs = set(chosen.entry.needs)
    if _goes_by_score(chosen) and step(chosen.params["score"])[0] not in cases.info:
        needs |= set(bind("score", *step(chosen.params["score"])).entry.needs)
    if needs.isdisjoint({"activation", START}):
        return Bench(target)
    net = target.target if isinstance(target, Deferred) else target
    told = identity_of(run).get("data", {})
    whole = kind_of(run) == "harden" and not str(told.get("spec", "")).startswith("dir:")  # its data are a whole set
    known = Data(run.name, cases[:0], target.spec, f"{told.get('spec', '')}{'/train' * whole}")
    try:
        with named_by_run(run) if training is None else nullcontext():
            learnt = training_of(known, training, size=told.get("size", ""))
        return Bench(net, training=None if learnt is None else fitted(net, learnt))
    except AssayError as error:
        if training is not None:
            raise
        log.warning("the training data of run %s are not found: %s; give --training", run.name, error)
        return Bench(net)


def _selected(run: Store, bench: Bench, cases: Cases, pool: Pool, chosen: Bound, given: Mapping[str, Any]) -> Selection:
    """The selection as the run keeps it, made where it does not yet."""
    asked = {"by": chosen.text, "of": len(pool.rows), "dropped": pool.dropped, **given}
    asked |= {"seeds": "seed_x" in cases.info, "code": _code(chosen)}
    done = list(run.commits("select"))
    for number, line in enumerate(done, start=1):
        if all(line.meta.get(key) == value for key, value in asked.items()):
            return _kept(run, number, cases, new=False)
    files, score = _picked(bench, cases[pool.rows], chosen, given["k"], Stream(given["seed"], ("select",)))
    files["rows"] = pool.rows[files["rows"]]  # rows of all that the run holds
    said = bench.told()
    told = asked | ({"said": said} if said else {})
    run.commit({_file(len(done) + 1): encode(files)}, kind="select", score=score, **told)
    return _kept(run, len(done) + 1, cases, new=True)


def _code(chosen: Bound) -> dict[str, str]:
    """The files of the user's own that the selector and its score lie in, with their digests."""
    texts = [chosen.entry.name, *([step(chosen.params["score"])[0]] if _goes_by_score(chosen) else [])]
    places = {text: place[0].resolve() for text in texts if (place := python_file(text)) is not None}
    return {text: _digest(file) for text, file in places.items() if file.is_file()}


@functools.cache  # as their code, which is loaded once
def _digest(file: Path) -> str:
    return sha256(file.read_bytes())


def load_selection(run: Store, number: int) -> Selection:
    """A selection that a run keeps, by its number from 1."""
    have = sum(1 for _ in run.commits("select"))
    if not 1 <= number <= have:
        hint = f"its last one is {have}" if have else "make one with assay select"
        raise UsageError(f"run {run.name} has no selection {number}; {hint}")
    return _kept(run, number, stored_cases(run), new=False)


def _kept(run: Store, number: int, every: Cases, *, new: bool) -> Selection:
    meta = list(run.commits("select"))[number - 1].meta
    kept = decode(run.file(_file(number)))
    if int(kept["rows"].max()) >= len(every):  # a round of a hardening lost cases since
        raise UsageError(f"run {run.name} lost cases of its selection {number}; select anew")
    cases = every[kept["rows"]]
    if meta["score"]:
        cases = cases.note(**{meta["score"]: kept["score"]})
    told = {key: meta[key] for key in ("by", "k", "of", "score")}
    told |= {key: meta.get(key, {}) for key in ("dropped", "said")}
    return Selection(run.path, number, cases=cases, classes=class_names(run, every), new=new, **told)


def _file(number: int) -> str:
    return f"state/selected-{number:03d}.safetensors"


def _picked(bench: Bench, cases: Cases, chosen: Bound, k: int, rng: Stream) -> tuple[dict[str, Tensor], str]:
    """The rows a selector picks, with their scores where it goes by one, and the name of that score."""
    cases = cases.to(bench.target.device)
    rows = checked(chosen(bench, cases, k, rng=rng), min(k, len(cases)), len(cases), chosen.entry.name)
    if not _goes_by_score(chosen):
        return {"rows": rows}, ""
    score, eps, norm = (chosen.params[key] for key in _SCORED)
    return {"rows": rows, "score": scored(bench, cases[rows], score, eps, norm)}, step(score)[0].rpartition(":")[2]


_SCORED = ("score", "eps", "norm")


def _goes_by_score(chosen: Bound) -> bool:
    """Whether a selector has the three parameters that say which score it ranks by."""
    return all(key in chosen.params for key in _SCORED)


def with_seeds(run: Store, cases: Cases, data: str | Data | None) -> Cases:
    """The cases with column ``seed_x``, which a saved evaluation does not keep: read from the data it was made of."""
    told = identity_of(run).get("data", {})
    try:
        with nullcontext() if data else named_by_run(run):
            known = load_data(data or told.get("spec", ""))
        if known.fingerprint() != told.get("fingerprint"):
            raise UsageError(f"{known.name} is not what the run was made of")
    except AssayError as error:
        log.warning(
            "the seeds of run %s are not known: %s; give --data, or each case counts as its own", run.name, error
        )
        return cases
    place = torch.zeros(int(known.cases.origin.max()) + 1, dtype=torch.int64)
    place[known.cases.origin] = torch.arange(len(known))
    return cases.note(seed_x=known.cases.x[place[cases.origin]])
