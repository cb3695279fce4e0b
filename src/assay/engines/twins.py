"""Two models of one task: the vulnerable one, as it was given, and the resistant one, given too or built from it."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from assay.core.cases import UNLABELLED
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import Bound
from assay.core.store import Store
from assay.engines.hardening_models import Models, facts_of
from assay.engines.siblings import other_model
from assay.recipes.recipe import Stages
from assay.subjects.bench import Data, Splits, fitted, with_validation
from assay.subjects.data.load import training_of
from assay.subjects.sources.load import module_of
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import Target, require

Progress = Callable[[Mapping[str, Any]], None]
Model = str | nn.Module | Target

TWINS = "twins"  # what a stage needs that asks the vulnerable model too
RESISTANT = "resistant"  # the name of the built one in a run folder


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
        return {"built_from": self.splits.part("train").fingerprint()}

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
            training = {"start": name, "trainer": self.fit.text, "data": self.splits.name, "seed": seed}
            training["train_fingerprint"] = self.splits.part("train").fingerprint()
            rng = Stream(seed, (RESISTANT,))
            made, told = models.trained(RESISTANT, start, self.fit, self.splits, None, rng, training, progress)
            weights = models.encoded(made, training=training | {"log": told})
            fingerprint = ModuleTarget(made, start.spec, start.device).fingerprint()
            folder.commit({f"models/{RESISTANT}.safetensors": weights}, kind=RESISTANT, fingerprint=fingerprint)
            models.forget(RESISTANT)
        return models.target(RESISTANT)


def twins_of(
    stages: Stages,
    model: Model,
    vulnerable: Target,
    resistant: Model | None,
    data: Data,
    training: str | Data | None,
    *,
    size: str = "",
    **loading: Any,
) -> Twins | None:
    """The pair that the recipe tests, None where it tests one model; refused where it cannot come about."""
    if stages.resistant is None:
        if resistant is not None:
            raise UsageError(
                f"recipe {stages.name!r} knows no resistant model; --resistant is for twinfuzz and its like"
            )
        return None
    if resistant is not None:
        given = other_model("--resistant", resistant, vulnerable, data, **loading)
        return Twins(model, vulnerable, given, stages.resistant, None)
    require(vulnerable, (*stages.resistant.entry.needs, "grad"), "building the resistant model")
    learnt = training_of(data, training, size=size)
    if learnt is None or not bool((learnt.cases.y != UNLABELLED).any()):
        raise UsageError(
            "the resistant model is built from the given one with labelled training data, and nothing says which they "
            "are; name them (--training mnist/train), or give the model itself (--resistant MODEL)"
        )
    splits = with_validation(Splits(learnt.name, train=fitted(vulnerable, learnt)))
    return Twins(model, vulnerable, None, stages.resistant, splits)
