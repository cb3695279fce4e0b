"""Other models of the same task, for recipes that compare models."""

import logging
from collections.abc import Sequence
from typing import Any

from torch import nn

from assay.core.errors import UsageError
from assay.recipes.recipe import Recipe, found
from assay.subjects.bench import Data
from assay.subjects.sources.load import load_target
from assay.subjects.target import Target

log = logging.getLogger("assay")

SIBLINGS = "siblings"  # what a stage needs that compares models


def siblings_of(
    models: Sequence[str | nn.Module | Target],
    target: Target,
    data: Data,
    device: str,
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
) -> tuple[Target, ...]:
    """The models as targets; refused where they do not take the target's inputs or name its classes otherwise."""
    return tuple(other_model("--with", model, target, data, device=device, mean=mean, std=std) for model in models)


def other_model(
    flag: str,
    model: str | nn.Module | Target,
    target: Target,
    data: Data,
    *,
    beside: str = "the model under test",
    **loading: Any,
) -> Target:
    """Another model of the target's task, named by that flag; refused where it is none, or the target itself.

    ``beside`` is what messages call the target.
    """
    other = load_target(model, data=data, **loading)
    name = f"{flag} {model if isinstance(model, str) else type(model).__name__}"
    if other.spec.shape != target.spec.shape or other.spec.bounds != target.spec.bounds:
        raise UsageError(f"{name} takes {other.spec}, {beside} {target.spec}")
    if other.spec.classes != target.spec.classes:
        raise UsageError(f"{name} has other classes than {beside}, or another order of them")
    if other.fingerprint() == target.fingerprint():
        raise UsageError(f"{name} is {beside} itself: the two can never disagree")
    return other


def for_siblings(
    recipe: str | Recipe, others: Sequence[object], why: str = "no other was given (--with MODEL)"
) -> Recipe:
    """The recipe, or its form for one model alone where there are no others, and ``why`` not."""
    chosen = found(recipe)
    if others or not chosen.alone:
        return chosen
    log.warning(
        "recipe %s compares models and %s: this is %s, its form for one model alone",
        chosen.name,
        why,
        chosen.alone,
    )
    return found(chosen.alone)
