"""Selection: the cases of a run worth most, picked by any selector and kept in the run."""

import logging
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from assay.core import store
from assay.core.cases import Cases
from assay.core.errors import AssayError, UsageError
from assay.core.randomness import Stream
from assay.core.registry import Bound, bind
from assay.core.shards import decode, encode
from assay.core.specs import Step, step
from assay.core.store import Store
from assay.core.units import budget
from assay.engines.run_target import Model, target_of
from assay.engines.session import session
from assay.engines.stored import class_names, identity_of, stored_cases
from assay.stages.selectors.ranking import scored
from assay.subjects.bench import Bench, Data
from assay.subjects.data.load import load_data
from assay.subjects.target import require

log = logging.getLogger("assay")


@dataclass(frozen=True, slots=True)
class Selection:
    """What a selector picked from the ``of`` cases of a run; ``score`` names the column it went by, if any."""

    run: Path
    number: int
    by: str
    cases: Cases
    of: int
    score: str
    classes: tuple[str, ...]
    new: bool

    @property
    def file(self) -> str:
        return _file(self.number)


def select(
    run: str | Path,
    *,
    by: Step,
    k: int,
    model: Model | None = None,
    data: str | Data | None = None,
    eps: str | float | None = None,
    norm: str | None = None,
    seed: int = 0,
    device: str = "auto",
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
) -> Cases:
    """The ``k`` cases of a run that a selector picks, in its order; all of them where there are fewer.

    The model is the run's own unless another is given, and is loaded only where the selector asks it. The selection is
    kept in the run; the same call again reads it from there. ``data`` are those of a saved evaluation, where its text
    does not find them: the seeds of its examples and the classes of a bare net.
    """
    return selection(
        run, by=by, k=k, model=model, data=data, eps=eps, norm=norm, seed=seed, device=device, mean=mean, std=std
    ).cases


def selection(
    run: str | Path,
    *,
    by: Step,
    k: int,
    model: Model | None = None,
    data: str | Data | None = None,
    eps: str | float | None = None,
    norm: str | None = None,
    seed: int = 0,
    device: str = "auto",
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
) -> Selection:
    """As ``select``, with what a screen tells of it."""
    if k < 1:
        raise UsageError(f"k is how many cases to pick, from 1 up; got {k}")
    ball = {"eps": None if eps is None else budget(eps), "norm": norm or None}
    chosen = bind("selector", *step(by), ball)
    with store.continued(store.find_run(run)) as folder, session():
        cases = stored_cases(folder)
        if "seed_x" not in cases.info and _goes_by_score(chosen):
            cases = _with_seeds(folder, cases, data)
        target = target_of(folder, cases, model, data=data, device=device, mean=mean, std=std)
        if chosen.entry.needs:
            require(target, chosen.entry.needs, f"selector {chosen.entry.name!r}")
        told = "" if model is None else target.fingerprint()
        return _selected(folder, Bench(target), cases, chosen, k, seed, told)


def _selected(run: Store, bench: Bench, cases: Cases, chosen: Bound, k: int, seed: int, model: str) -> Selection:
    """The selection as the run keeps it, made where it does not yet."""
    asked = {"by": chosen.text, "k": k, "seed": seed, "of": len(cases), "model": model}
    asked["seeds"] = "seed_x" in cases.info
    done = list(run.commits("select"))
    for number, line in enumerate(done, start=1):
        if all(line.meta.get(key) == value for key, value in asked.items()):
            return _kept(run, number, cases, new=False)
    files, score = _picked(bench, cases, chosen, k, Stream(seed, ("select",)))
    run.commit({_file(len(done) + 1): encode(files)}, kind="select", score=score, **asked)
    return _kept(run, len(done) + 1, cases, new=True)


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
    cases = every[kept["rows"]]
    if meta["score"]:
        cases = cases.note(**{meta["score"]: kept["score"]})
    return Selection(run.path, number, meta["by"], cases, meta["of"], meta["score"], class_names(run, every), new)


def _file(number: int) -> str:
    return f"state/selected-{number:03d}.safetensors"


def _picked(bench: Bench, cases: Cases, chosen: Bound, k: int, rng: Stream) -> tuple[dict[str, Tensor], str]:
    """The rows a selector picks, with their scores where it goes by one, and the name of that score."""
    cases = cases.to(bench.target.device)
    rows = _checked(chosen(bench, cases, k, rng=rng), min(k, len(cases)), len(cases), chosen.entry.name)
    if not _goes_by_score(chosen):
        return {"rows": rows}, ""
    score, eps, norm = (chosen.params[key] for key in _SCORED)
    return {"rows": rows, "score": scored(bench, cases[rows], score, eps, norm)}, step(score)[0].rpartition(":")[2]


_SCORED = ("score", "eps", "norm")


def _goes_by_score(chosen: Bound) -> bool:
    """Whether a selector has the three parameters that say which score it ranks by."""
    return all(key in chosen.params for key in _SCORED)


def _checked(rows: object, k: int, n: int, who: str) -> Tensor:
    """What a selector returned, if it is what it must be."""
    if isinstance(rows, Tensor) and rows.shape == (k,) and rows.dtype == torch.int64:
        rows = rows.cpu()
        if len(rows.unique()) == k and bool(((rows >= 0) & (rows < n)).all()):
            return rows
    raise UsageError(f"selector {who!r} must return {k} distinct rows of {n} cases, as (k,) int64; it gave {rows}")


def _with_seeds(run: Store, cases: Cases, data: str | Data | None) -> Cases:
    """The cases with column ``seed_x``, which a saved evaluation does not keep: read from the data it was made of."""
    told = identity_of(run).get("data", {})
    try:
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
