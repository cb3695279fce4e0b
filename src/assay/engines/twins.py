"""Two models of one task: the vulnerable one, as it was given, and the resistant one, given too or built from it."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from assay.core.cases import UNLABELLED
from assay.core.errors import UsageError
from assay.core.registry import Bound
from assay.core.store import Store
from assay.engines.hardening_models import Models, facts_of
from assay.engines.resistant_model import BESIDE, RESISTANT, Building
from assay.engines.siblings import other_model
from assay.recipes.recipe import Stages
from assay.stages.trainers.loop import rank
from assay.stages.trainers.resistant import attacks_of
from assay.subjects.bench import Data, Splits, fitted
from assay.subjects.data.load import splits_to_train
from assay.subjects.sources.load import module_of
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import Target, require

Progress = Callable[[Mapping[str, Any]], None]
Model = str | nn.Module | Target

TWINS = "twins"  # what a stage needs that asks the vulnerable model too


@dataclass(frozen=True, slots=True)
class Twins:
    """The vulnerable model, and the resistant one or how it is built."""

    model: Model  # the vulnerable one as it was named
    vulnerable: Target
    given: Target | None
    fit: Bound
    splits: Splits | None  # to build it with

    @property
    def like_resistant(self) -> Target:
        """The resistant model, or a net of its form before there is one."""
        return self.given or self.vulnerable

    def config(self, named: Model | None) -> dict[str, str]:
        """What makes the pair this pair, beside the vulnerable model."""
        if self.given is not None:
            text = named if isinstance(named, str) else "module"
            return {RESISTANT: text, f"{RESISTANT}_fingerprint": self.given.fingerprint()}
        assert self.splits is not None  # twins_of has seen to it
        return {"built_from": "+".join(self.splits.part(part).fingerprint() for part in ("train", "val"))}

    def resistant(self, folder: Store, seed: int, progress: Progress) -> Target:
        """The resistant model; one that is built is kept in the run folder, and a training that was stopped goes on."""
        if self.given is not None:
            return self.given
        assert self.splits is not None
        start = ModuleTarget(
            copy.deepcopy(module_of(self.vulnerable)).eval(), self.vulnerable.spec, self.vulnerable.device
        )
        models = Models(folder, start, facts_of(self.model, start), {})
        if next(folder.commits(RESISTANT), None) is None:
            name = self.model if isinstance(self.model, str) else "module"
            made, training = Building(models, name, self.fit, self.splits, seed).built(RESISTANT, progress)
            files = {f"models/{RESISTANT}.safetensors": models.encoded(made.module, training=training)}
            best = max(training["log"], key=rank)
            numbers = {name: best[name] for name in ("val_accuracy", "failures_accuracy") if name in best}
            folder.commit(files, kind=RESISTANT, fingerprint=made.fingerprint(), numbers=numbers)
            models.forget(RESISTANT)
        return models.target(RESISTANT)


def check_twins(stages: Stages, *, given: bool) -> None:
    """Refuse a resistant model where the recipe knows none, and a recipe that asks two models where it has one."""
    if stages.resistant is not None:
        return
    if given:
        raise UsageError(f"recipe {stages.name!r} knows no resistant model; --resistant is for twinfuzz and its like")
    if TWINS in stages.needs():
        raise UsageError(
            f"recipe {stages.name!r} asks a vulnerable model beside the resistant one it tests; "
            "take recipe twinfuzz, or say how the resistant one is built: --set resistant=resistant"
        )


def twins_of(
    stages: Stages,
    model: Any,
    vulnerable: Target,
    resistant: Model | None,
    data: Data,
    training: str | Data | None,
    *,
    size: str = "",
    **loading: Any,
) -> Twins | None:
    """The pair that the recipe tests, None where it tests one model; refused where it cannot come about."""
    check_twins(stages, given=resistant is not None)
    if stages.resistant is None:
        return None
    if resistant is not None:
        given = other_model("--resistant", resistant, vulnerable, data, beside=BESIDE, **loading)
        return Twins(model, vulnerable, given, stages.resistant, None)
    require(vulnerable, (*stages.resistant.entry.needs, "grad"), "building the resistant model")
    attacks_of(stages.resistant, vulnerable)  # a wrong name costs nothing here, and minutes once a model is being built
    parts = splits_to_train(data, training, size=size)
    if parts is None or not bool((parts.part("train").cases.y != UNLABELLED).any()):
        raise UsageError(
            "the resistant model is built from the given one with labelled training data, and nothing says which they "
            "are; name them (--training mnist/train), or give the model itself (--resistant MODEL)"
        )
    splits = replace(parts, train=fitted(vulnerable, parts.part("train")), val=fitted(vulnerable, parts.part("val")))
    return Twins(model, vulnerable, None, stages.resistant, splits)
