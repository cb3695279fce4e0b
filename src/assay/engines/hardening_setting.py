"""What is settled before a hardening begins: the recipe with its stages found, the data, the amounts."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from assay.core.errors import UsageError
from assay.core.registry import Bound
from assay.core.specs import Params
from assay.core.units import count, seconds
from assay.engines.cluster import Cluster
from assay.engines.held_out import MINES
from assay.engines.rehearsal import rehearsed
from assay.engines.resistant_model import Given
from assay.engines.siblings import SIBLINGS, for_siblings
from assay.engines.stored import EVERY
from assay.engines.twins import TWINS, check_twins
from assay.recipes.recipe import Hardening, Recipe, Stages, finds_cases, hardening, resolve
from assay.stages.trainers.dare import refuse
from assay.stages.trainers.resistant import attacks_of
from assay.subjects.bench import Data, Splits
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.target import START, Target, require

log = logging.getLogger("assay")

FUZZ_TIME = "30s"
PER_ROUND = "10%"

Say = Callable[[Mapping[str, Any]], None]
Tell = Callable[..., Say]  # (phase=…, round=…) -> where the numbers of that phase go


class Stopped(KeyboardInterrupt):
    """Ctrl-C between two steps of a round; what is committed stays."""


@dataclass(frozen=True, slots=True)
class System:
    """A recipe as hardening takes it; ``stages`` find cases, and are None where it only trains."""

    recipe: Recipe
    changes: Mapping[str, Any]
    stages: Stages | None
    after: Hardening

    @staticmethod
    def of(recipe: str | Recipe, changes: Mapping[str, Any], offered: Params, *, resistant: bool) -> "System":
        """The recipe with its stages found; refused where hardening cannot run it on one model, or with ``resistant``
        on that and a resistant one.
        """
        chosen = for_siblings(recipe, (), "hardening has one")
        after = hardening(chosen, changes, offered)
        if not finds_cases(chosen, changes):
            if resistant:
                raise UsageError(f"recipe {chosen.name!r} knows no resistant model; --resistant is for twinfuzz")
            return System(chosen, changes, None, after)
        if MINES in after.train.entry.needs:
            raise UsageError(
                f"trainer {after.train.entry.name!r} learns from the model's past, not from the cases that recipe "
                f"{chosen.name!r} finds; take a recipe that only trains: --recipe dare"
            )
        stages = resolve(chosen, changes, offered)
        check_twins(stages, given=resistant)
        if SIBLINGS in stages.needs() and stages.resistant is None:
            raise UsageError(
                f"recipe {stages.name!r} compares models, and hardening has one; take another recipe, "
                "or say how a resistant one is built: --set resistant=resistant"
            )
        return System(chosen, changes, stages, after)

    def timed(self, time: float | None, *, deterministic: bool) -> tuple["System", float | None]:
        """The system with that time given to its trainers, where it only trains, for a time; the time that is left for
        the rounds to heed.
        """
        after = self.after
        if not after.alone or after.control is None or not after.train.params.get("time"):
            return self, time  # epochs are what it has, whatever they take
        if time is not None:
            timed = {"time": time}
            control = after.control
            if control.params.get("time"):
                control = replace(control, params={**control.params, **timed})
            train = replace(after.train, params={**after.train.params, **timed})
            parts = {name: replace(part, params={**part.params, **timed}) for name, part in after.parts.items()}
            after = replace(after, train=train, control=control, parts=parts)
        if deterministic and after.train.params["time"]:
            log.warning(
                "how many epochs fit in a time depends on the machine; with --set train.time=0 the result repeats"
            )
        return replace(self, after=after), None

    @property
    def keeps_all(self) -> bool:
        """Whether what is found is a pool, of which only a part fails."""
        return self.stages is not None and self.stages.oracle.entry.name == EVERY

    @property
    def resistant(self) -> Bound | None:
        """What builds the resistant one of two models, None where there is one."""
        return None if self.stages is None else self.stages.resistant

    @property
    def control(self) -> Bound:
        """What trains the control: without a trainer of its own, the same that learns from cases."""
        return self.after.control or self.after.train

    def control_data(self, splits: Splits) -> Splits:
        """What the control is trained on: where the recipe only trains, the inputs that its trainer mined."""
        if not self.after.alone or splits.held_out is None:
            return splits
        return replace(splits, train=splits.held_out, held_out=None)

    def config(self) -> dict[str, Any]:
        stages = {"name": self.recipe.name} if self.stages is None else self.stages.config()
        return stages | self.after.config()

    def try_on(self, target: Target, training: Data) -> None:
        """Refuse what cannot work on this target before a run folder is made."""
        needs = set(self.after.train.entry.needs)
        if self.stages is not None:
            needs |= {*self.stages.needs(), *self.after.select.entry.needs}
        require(target, needs - {SIBLINGS, TWINS, MINES, START}, f"recipe {self.recipe.name!r}")
        if self.stages is not None:
            rehearsed(target, (), self.stages, training, None if self.resistant is None else target)
        if self.resistant is not None:
            attacks_of(self.resistant, target)
        if MINES in needs and isinstance(target, ModuleTarget):
            refuse(self.after.train, target)


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much of what: cases picked a round, and time and cases of one round's fuzzing; nothing without fuzzing."""

    per_round: int = 0
    fuzzing: Mapping[str, Any] | None = None

    @staticmethod
    def of(
        system: System,
        training: int,
        per_round: str | int | None,
        time: str | float | None,
        cases: int | None,
        *,
        deterministic: bool,
    ) -> "Amounts":
        """As asked; ``training`` is the size of the training part, of which shares are taken."""
        if system.stages is None:
            return Amounts()
        if cases is not None and cases < 1:
            raise UsageError(f"fuzz_cases must be at least 1, got {cases}")
        if time is None and cases is None:
            time = FUZZ_TIME
        if deterministic and time is not None:
            log.warning(
                "how many cases are found in a time depends on the machine; with --fuzz-cases the result repeats"
            )
        limits = {"time": None if time is None else seconds(time), "cases": cases}
        fuzzing = {name: value for name, value in limits.items() if value is not None}
        return Amounts(count(PER_ROUND if per_round is None else per_round, training, "per_round"), fuzzing)

    def config(self) -> dict[str, Any]:
        if self.fuzzing is None:
            return {}
        return {"per_round": self.per_round, **{f"fuzz_{name}": value for name, value in self.fuzzing.items()}}


def refuse_fuzzing(system: System, **asked: object) -> None:
    """Options that say how to fuzz, where nothing does."""
    given = [f"--{name.replace('_', '-')}" for name, value in asked.items() if value is not None]
    if system.stages is None and given:
        raise UsageError(
            f"recipe {system.recipe.name!r} finds no cases, it trains: {', '.join(given)} would have no effect"
        )


@dataclass(frozen=True, slots=True)
class Setting:
    """What does not change from round to round."""

    system: System
    eps: str | float
    norm: str | None
    splits: Splits
    val: Data  # the part of the validation cases that is measured
    test: Data
    amounts: Amounts
    seed: int
    deterministic: bool
    training: Mapping[str, Any]  # what every checkpoint says of how it was trained
    control: Mapping[str, Any]  # the same of the control's
    given: Given | None = None  # the resistant model, where there are two and it is not built
    cluster: Cluster | None = None  # where the work is done; None is this process

    @property
    def first(self) -> int:
        """The first round that learns; where there are two models, the one before is the resistant one."""
        return 1 if self.system.resistant is None else 2
