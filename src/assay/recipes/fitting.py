"""The suites and recipes that a target can be used with, by what it gives."""

from collections.abc import Collection

from assay.core.errors import UsageError
from assay.core.registry import entry, lookup, names
from assay.core.specs import step
from assay.recipes.recipe import resolve

_ANY_BALL = {"eps": 0.1, "norm": "linf"}  # what a recipe needs does not depend on it


def suites_for(gives: Collection[str]) -> list[str]:
    """The suites whose attacks all need no more than ``gives``; not those that depend on how the model was trained."""
    known = {name: lookup("suite", name)[1] for name in names("suite")}
    needed = {
        name: {need for attack in suite.attacks for need in entry("attack", step(attack)[0]).needs}
        for name, suite in known.items()
        if not suite.relative
    }
    return [name for name, needs in needed.items() if needs <= set(gives)]


def recipes_for(gives: Collection[str]) -> list[str]:
    """The recipes that need no more than ``gives`` and no other model."""
    return [name for name in names("recipe") if _needed(name) <= set(gives)]


def _needed(name: str) -> set[str]:
    try:
        stages = resolve(name, {}, _ANY_BALL)
    except UsageError:  # one that finds no cases
        return {"train"}
    named = (stage.params.get("attack") for stage in (stages.mutate, *stages.seeds.values()))
    attacks = [step(text)[0] for text in named if isinstance(text, str)]
    return stages.needs() | {need for attack in attacks for need in entry("attack", attack).needs}
