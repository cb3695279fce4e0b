"""The oracle of a run and the other models that it compares with, found again."""

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.registry import Bound, bind
from assay.core.specs import step
from assay.core.store import Store
from assay.engines.resistant_model import RESISTANT
from assay.engines.run_target import Model
from assay.engines.siblings import SIBLINGS, other_model
from assay.engines.stored import class_names, identity_of, keeps_all, named_by_run
from assay.engines.twins import TWINS
from assay.stages.twins import VULNERABLE
from assay.subjects.bench import Data
from assay.subjects.sources.load import load_target
from assay.subjects.target import Target

log = logging.getLogger("assay")


def oracle_of(run: Store) -> Bound:
    """What says that a case of the run fails; a saved evaluation goes by labels, and so does a pool."""
    told = identity_of(run).get("recipe", {}).get("oracle")
    with named_by_run(run):
        return bind("oracle", *step("wrong_label" if told is None or keeps_all(run) else told))


def siblings_given(run: Store, cases: Cases, models: Sequence[Model], **loading: Any) -> tuple[Target, ...]:
    """Other models that were named anew, as targets for the run's inputs."""
    return tuple(load_target(model, data=_known(run, cases), **_moments(run, loading)) for model in models)


def roles_of(
    run: Store, oracle: Bound, cases: Cases, target: Target, siblings: Sequence[Target], **loading: Any
) -> dict[str, Target]:
    """The models beside the target by their roles, none where the oracle asks for none: the run's own siblings unless
    others are given, and the vulnerable one of two.
    """
    told = identity_of(run).get("target", {})
    twins = RESISTANT in told or "built_from" in told
    had = bool(siblings or twins or told.get("with"))
    if not {SIBLINGS, TWINS} & set(oracle.entry.needs) and not (oracle.from_file and had):
        return {}
    loading = _moments(run, loading)
    known, roles = _known(run, cases), {}
    for number, model in enumerate(siblings or told.get("with", ()), 1):
        _refuse_live(run, oracle, model, "give the others again, in their order: --with MODEL")
        with nullcontext() if siblings else named_by_run(run):
            roles[f"sibling{number}"] = other_model("--with", model, target, known, **loading)
    if [net.fingerprint() for net in roles.values()] != told.get("siblings", []):
        if not siblings:
            raise UsageError(
                f"the other models of run {run.name} are no longer what they were; give them: --with MODEL"
            )
        log.warning("the other models are not those that run %s was made with", run.name)
    if twins:
        _refuse_live(run, oracle, told["model"], "such a run cannot be judged anew")
        with named_by_run(run):
            roles[VULNERABLE] = other_model("the vulnerable model", told["model"], target, known, **loading)
        if roles[VULNERABLE].fingerprint() != told["fingerprint"]:
            raise UsageError(f"{told['model']} is no longer the vulnerable model that run {run.name} was made with")
    if not roles:
        raise UsageError(f"oracle {oracle.text} of run {run.name} compares models; name another one: --with MODEL")
    return roles


def _known(run: Store, cases: Cases) -> Data:
    """What nets that do not say so themselves have to know: the shape of inputs, and the classes."""
    spec = InputSpec(tuple(cases.x.shape[1:]), (0.0, 1.0), class_names(run, cases))
    return Data(f"run {run.name}", cases[:0], spec)


def _moments(run: Store, loading: dict[str, Any]) -> dict[str, Any]:
    """How models are loaded, with the run's own normalisation where none is given."""
    told = identity_of(run).get("target", {})
    return loading | {name: loading.get(name) or told.get(name, ()) for name in ("mean", "std")}


def _refuse_live(run: Store, oracle: Bound, model: object, hint: str) -> None:
    if model == "module":
        raise UsageError(f"oracle {oracle.text} compares models, and run {run.name} was made with live ones; {hint}")
