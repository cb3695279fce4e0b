"""The target of a run that exists: the model it was made with, found again, or another one."""

import functools
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from assay.core import store
from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.store import Store
from assay.engines.asking import ANSWERS
from assay.engines.resistant_model import RESISTANT
from assay.engines.stored import class_names, identity_of, kind_of, named_by_run, round_number
from assay.subjects.answer_book import told_before
from assay.subjects.asked import Asked
from assay.subjects.bench import Data
from assay.subjects.data.load import load_data
from assay.subjects.sources.hub_specs import split_weights
from assay.subjects.sources.load import load_target, pick_device
from assay.subjects.target import Need, Target

log = logging.getLogger("assay")

Model = str | nn.Module | Target


def target_of(
    run: Store,
    cases: Cases,
    model: Model | None = None,
    *,
    data: str | Data | None = None,
    device: str = "auto",
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    queries: int | None = None,
    ask: str = "",
    white_box: bool = False,
    anew: bool = False,
) -> Target:
    """The given model; else the run's own, loaded when it is first asked, so that who asks nothing needs none.

    ``queries``, ``ask`` and ``white_box`` are for models that only answer; what the run's own one answers is kept in
    the run, and the budget is the run's where nothing is said. ``anew`` is for who only reads: nothing is kept, no
    answer is known beforehand, the budget is what is said, and a model that is not the run's is what was meant.
    """
    asking = {"queries": queries, "ask": ask, "white_box": white_box, "anew": anew}
    if model is not None:
        return _load(run, cases, model, data, device, mean, std, asking)
    return Deferred(lambda: _load(run, cases, None, data, device, mean, std, asking), pick_device(device))


class Deferred:
    """A target that is loaded when it is first asked."""

    def __init__(self, load: Callable[[], Target], device: torch.device) -> None:
        self.load, self.device = load, device

    @functools.cached_property
    def target(self) -> Target:
        return self.load()

    @property
    def spec(self) -> InputSpec:
        return self.target.spec

    @property
    def gives(self) -> frozenset[Need]:
        return self.target.gives

    def __call__(self, x: Tensor) -> Tensor:
        return self.target(x)

    def ready(self) -> AbstractContextManager[object]:
        return self.target.ready()

    def fingerprint(self) -> str:
        return self.target.fingerprint()


def _load(
    run: Store,
    cases: Cases,
    model: Model | None,
    data: str | Data | None,
    device: str,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    asking: Mapping[str, Any],
) -> Target:
    """The model that was given, or the run's own, which must still be what it was."""
    told = identity_of(run).get("target", {})
    own = told if model is None else {}  # the run's normalisation belongs to the run's net
    text = own_text(run) if model is None else ""
    if data is None:
        shape = tuple(cases.x.shape[1:])
        known = Data(f"run {run.name}", cases[:0], InputSpec(shape, (0.0, 1.0), class_names(run, cases)))
    else:
        known = load_data(data, size=identity_of(run).get("data", {}).get("size", ""))
    moments: dict[str, Any] = {"mean": mean or own.get("mean", ()), "std": std or own.get("std", ())}
    opened = asking["white_box"] or bool(own.get("white_box"))
    given = {**moments, **asking, "white_box": opened}
    anew = given.pop("anew")
    if model is None:
        given |= {"ask": asking["ask"] or _how(run)}
        if not anew or told_before(run.path / ANSWERS):  # else it is asked one input to see, which nobody notes
            given["answers"] = run.path / ANSWERS
        if asking["queries"] is None and not opened and not anew:
            given["queries"] = _table(run, "budget").get("queries")
    try:
        with named_by_run(run) if model is None else nullcontext():
            target = load_target(text if model is None else model, data=known, device=device, **given)
    except UsageError as error:
        if model is not None:
            raise
        raise UsageError(f"the model of run {run.name} cannot be used: {error}; give --model") from error
    if target.spec.shape != tuple(cases.x.shape[1:]):
        raise UsageError(
            f"the model takes inputs of shape {target.spec.shape}, the cases have {tuple(cases.x.shape[1:])}"
        )
    if target.fingerprint() != _own_fingerprint(run):
        if model is None:
            raise UsageError(
                f"{text} is not the model that run {run.name} was made with: its weights, normalisation or "
                "classes differ; give --model (with --data, --mean and --std where they belong to it)"
            )
        if not anew:
            log.warning("the model is not the one run %s was made with; scores are those of the given one", run.name)
    elif isinstance(target, Asked) and not anew:
        target.keep(run.path / ANSWERS)
    return target


def _how(run: Store) -> str:
    """How the run asked a model that only answers, which is no part of what the run is."""
    return str(_table(run, "ask").get("how", ""))


def _table(run: Store, name: str) -> Mapping[str, Any]:
    """A table of the run's configuration."""
    try:
        found: Mapping[str, Any] = run.config.get(name, {})
    except (OSError, ValueError):  # no such file, or a damaged one
        return {}
    return found


def _own_fingerprint(run: Store) -> object:
    """The fingerprint of the model that was tested: of two, the resistant one."""
    built = next(run.commits(RESISTANT), None)
    told = identity_of(run).get("target", {})
    return built.meta["fingerprint"] if built else told.get(f"{RESISTANT}_fingerprint", told.get("fingerprint"))


def result_text(run: Store) -> tuple[str, int]:
    """The best model of a hardening as text, and the number of the round that made it."""
    best = next((int(line.meta["best"]) for line in reversed(list(run.commits("best")))), None)
    model = str(identity_of(run).get("target", {}).get("model", "module"))
    hint = "give --model NET@WEIGHTS"
    if best is None:
        have = sorted(path.name for path in (run.path / "models").glob("round-*.safetensors"))
        raise UsageError(
            f"run {run.name} has no result yet; {hint}, such as one of its {', '.join(have) or 'models to come'}"
        )
    weights = run.path / "models" / f"round-{best:03d}.safetensors"
    if model == "module":
        raise UsageError(f"run {run.name} hardened a live model, which no text names; {hint}, its result is {weights}")
    return f"{split_weights(model)[0]}@{weights}", best


def own_text(run: Store) -> str:
    """The model of a run as text: of a hardening the original one, of a round of it the one it fuzzed."""
    path, told, weights = run.path.resolve(), identity_of(run), None
    outer, number = store.begun_with(path.parent), round_number(path)
    if kind_of(run) == "harden":
        weights = path / "models" / "round-000.safetensors"
    elif number and outer.get("run", {}).get("kind") == "harden":
        told, weights = outer, path.parent / "models" / f"round-{number - 1:03d}.safetensors"
    elif any(run.commits(RESISTANT)):  # built from the model that was given
        weights = path / "models" / f"{RESISTANT}.safetensors"
    own = told.get("target", {})
    model = str(own.get("model", "module") if weights is not None else own.get(RESISTANT, own.get("model", "module")))
    if model == "module":
        hint = "" if weights is None else f" NET@{weights}"
        raise UsageError(f"the model is asked here, and run {run.name} was made with a live one; give --model{hint}")
    return model if weights is None else f"{split_weights(model)[0]}@{weights}"
