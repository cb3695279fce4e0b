"""What recipes and suites are made of."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.core.errors import UsageError
from assay.core.registry import Bound, bind, lookup, names
from assay.core.specs import Params, Step, canonical, did_you_mean, python_file, step
from assay.core.units import budget
from assay.recipes.steps import change_list, change_one, maybe, members

# Which kind of stage each field of a recipe names: those of fuzzing, of which some are lists, and those of hardening.
FIELDS = {"schedule": "schedule", "mutate": "mutator", "oracle": "oracle"}
LISTS = {
    "seeds": "seeder",
    "objective": "score",
    "score": "score",
    "valid": "filter",
    "keep": "filter",
    "opinions": "oracle",
}
OPTIONAL = {"coverage": "criterion", "strategy": "strategy", "resistant": "trainer"}
WORDS = {
    "layers": "auto",
    "counted": "all",
}  # words of fuzzing; they say nothing without a criterion
HARDENING = {"select": "selector", "train": "trainer", "control": "trainer"}
PLAIN = {"suite": "fast", "heap": "all"}  # and words of hardening
COUNTED = ("all", "failures")
TRAINING = ("train", "control", "suite")  # what is left of a recipe that finds no cases


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """A system: the stages of a campaign, each a name or (name, parameters).

    ``seeds`` is a chain: each step a seeder, or a filter that drops what it refuses. Fuzzing mutates seeds (``mutate``,
    climbing the sum of the ``objective``'s scores where it asks for a slope), notes each case's ``score``, drops cases
    that not all of ``valid`` accept, goes on from those that any of ``keep`` accepts (all, where there is none), and
    stores those for which the ``oracle`` fires; ``opinions`` are oracles that are only counted. Where it has a trainer
    ``resistant``, what is tested is a resistant model built by it from the one that was given, the vulnerable one,
    unless both are given. Where it has a criterion of
    ``coverage`` over neurons of ``layers``, each case's gain is known to the rules; with ``counted="failures"`` only
    failures cover anything. A ``strategy`` chooses the neurons that the score ``neurons`` pushes. ``alone`` names the
    recipe to run in place of one that compares models where there is no other model. Hardening then picks cases with
    ``select``, trains with ``train`` on those of every round (``heap="all"``) or of the last one (``"last"``), and
    measures with ``suite``; what comes of it is held against a model trained by ``control`` without the cases, by
    ``train`` itself where there is no ``control``. A recipe without ``mutate`` finds no cases: it only trains, once;
    ``parts`` names what such a training is made of, each with how it is taken out: a parameter (``awp=0``) or another
    trainer in its place.
    """

    name: str
    summary: str
    mutate: Step = ""
    paper: str = ""
    seeds: Step | tuple[Step, ...] = "correct"
    schedule: Step = "per_seed"
    oracle: Step = "wrong_label"
    objective: tuple[str, ...] = ()
    score: tuple[Step, ...] = ()
    valid: tuple[Step, ...] = ()
    keep: tuple[Step, ...] = ()
    opinions: tuple[Step, ...] = ()
    resistant: Step = ""
    coverage: Step = ""
    strategy: Step = ""
    layers: str = "auto"
    counted: str = "all"
    alone: str = ""
    select: Step = "random"
    train: Step = "plain"
    control: Step = ""
    suite: str = "fast"
    heap: str = "all"
    parts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Stages:
    """The fuzzing part of a recipe with its stages found and their parameters checked; lists by name."""

    name: str
    seeds: Mapping[str, Bound]
    schedule: Bound
    mutate: Bound
    oracle: Bound
    objective: Mapping[str, Bound]
    weights: Mapping[str, float]
    score: Mapping[str, Bound]
    valid: Mapping[str, Bound]
    keep: Mapping[str, Bound]
    opinions: Mapping[str, Bound]
    resistant: Bound | None = None
    coverage: Bound | None = None
    strategy: Bound | None = None
    layers: str = "auto"
    counted: str = "all"

    def needs(self) -> set[str]:
        single = [getattr(self, field) for field in FIELDS]
        several = [bound for field in LISTS for bound in getattr(self, field).values()]
        guides = [bound for bound in (self.coverage, self.strategy) if bound is not None]
        return {need for bound in (*single, *several, *guides) for need in bound.entry.needs}

    def config(self) -> dict[str, Any]:
        chain = [bound.text for bound in self.seeds.values()]
        told: dict[str, Any] = {"name": self.name, "seeds": chain if len(chain) > 1 else chain[0]}
        told |= {field: getattr(self, field).text for field in FIELDS}
        told["objective"] = [f"{self.weights[name]:g} * {bound.text}" for name, bound in self.objective.items()]
        for field in ("score", "valid", "keep", "opinions"):
            told[field] = [bound.text for bound in getattr(self, field).values()]
        for field in OPTIONAL:
            told[field] = [] if getattr(self, field) is None else getattr(self, field).text
        told |= {word: getattr(self, word) if self.coverage is not None else [] for word in WORDS}
        return {key: value for key, value in told.items() if value != []}


@dataclass(frozen=True, slots=True)
class Hardening:
    """The part of a recipe that comes after fuzzing; ``alone`` where nothing comes before it.

    ``control`` is None where the trainer itself, without cases, is the control. ``parts`` are the trainer without each
    of its parts.
    """

    select: Bound
    train: Bound
    suite: str
    heap: str
    control: Bound | None = None
    alone: bool = False
    parts: Mapping[str, Bound] = dataclasses.field(default_factory=dict)

    def config(self) -> dict[str, str]:
        told = {"select": self.select.text, "train": self.train.text, "suite": self.suite, "heap": self.heap}
        told |= {} if self.control is None else {"control": self.control.text}
        return {key: text for key, text in told.items() if key in TRAINING} if self.alone else told


def ball_of(eps: str | float | None, norm: str | None) -> Params:
    """What is offered to every stage: eps and norm as numbers and names, linf where a ball has no norm."""
    return {"eps": None if eps is None else budget(eps), "norm": norm or (None if eps is None else "linf")}


def resolve(recipe: str | Recipe, changes: Mapping[str, Any], offered: Params) -> Stages:
    """The fuzzing stages of a recipe.

    ``changes`` replaces whole stages (``mutate``), single parameters (``mutate.lr``, ``keep.rises.strict``) or weights
    (``objective.fol``); ``offered`` values, such as eps and norm, go to every stage that takes them and has none set.
    """
    recipe = found(recipe)
    if not finds_cases(recipe, changes):
        raise UsageError(
            f"recipe {recipe.name} finds no cases, it trains: assay harden MODEL --data DATA --recipe {recipe.name} "
            '--eps EPS --until "pgd>=0.5"'
        )
    chosen: dict[str, Any] = {field: maybe(getattr(recipe, field)) for field in FIELDS}
    chosen |= {field: members(field, getattr(recipe, field)) for field in LISTS}
    chosen |= {field: maybe(getattr(recipe, field)) for field in OPTIONAL}
    words: dict[str, Any] = {word: str(getattr(recipe, word)) for word in WORDS}
    for key, value in changes.items():
        field, _, rest = key.partition(".")
        if field in HARDENING or field in PLAIN:
            continue
        if field in WORDS:
            words[field] = str(value)
        elif field in OPTIONAL and not rest:
            chosen[field] = maybe(value)
        elif field in FIELDS or field in OPTIONAL:
            change_one(chosen, field, rest, value)
        elif field in LISTS:
            change_list(chosen, field, rest, value)
        else:
            known = [*FIELDS, *LISTS, *OPTIONAL, *WORDS, *HARDENING, *PLAIN]
            raise UsageError(f"a recipe has no stage {field!r}; {did_you_mean(field, known)}")
    one: dict[str, Any] = {field: _bound(kind, chosen[field], offered) for field, kind in FIELDS.items()}
    many: dict[str, Any] = {
        field: {
            name: bind(_kind_in(field, ref, kind), ref, params, offered)
            for name, (_, ref, params) in chosen[field].items()
        }
        for field, kind in LISTS.items()
    }
    if not many["seeds"]:
        raise UsageError("a recipe needs seeds; give a seeder: --set seeds=correct")
    guides: dict[str, Any] = {
        field: _bound(kind, chosen[field], offered) for field, kind in OPTIONAL.items() if chosen[field][0]
    }
    weights = {name: weight for name, (weight, _, _) in chosen["objective"].items()}
    _check_guides(guides, words)
    return Stages(recipe.name, **one, weights=weights, **many, **guides, **words)


def _kind_in(field: str, ref: Any, kind: str) -> str:
    """The kind of a member of a list; a chain of seeds may hold filters too."""
    by_name = isinstance(ref, str) and python_file(ref) is None
    if field != "seeds" or not by_name or canonical(ref) in map(canonical, names(kind)):
        return kind
    return "filter" if canonical(ref) in map(canonical, names("filter")) else kind


def _check_guides(guides: Mapping[str, Bound], words: Mapping[str, str]) -> None:
    if words["counted"] not in COUNTED:
        raise UsageError(f"counted is 'all' (every case covers) or 'failures' (only they do), got {words['counted']!r}")
    if "strategy" in guides and "coverage" not in guides:
        raise UsageError("a strategy chooses neurons by what is covered; give a criterion too: --set coverage=nc")


def finds_cases(recipe: Recipe, changes: Mapping[str, Any]) -> bool:
    """Whether a recipe has a mutator, as it is or by these changes (``none``); without one it only trains."""
    if "mutate" in changes and changes["mutate"] != "none":
        return bool(step(changes["mutate"])[0])  # an empty text is a slip, and refused
    return bool(maybe(changes.get("mutate", recipe.mutate))[0])


def hardening(recipe: str | Recipe, changes: Mapping[str, Any], offered: Params) -> Hardening:
    """What a recipe does with the cases it found; ``changes`` as for ``resolve``.

    A control whose number of epochs nobody says has as many as the trainer, or as much time.
    """
    recipe = found(recipe)
    alone = not finds_cases(recipe, changes)
    chosen: dict[str, Any] = {field: maybe(getattr(recipe, field)) for field in HARDENING}
    words = {field: str(getattr(recipe, field)) for field in PLAIN}
    for key, value in changes.items():
        field, _, rest = key.partition(".")
        if alone and field not in TRAINING and key != "mutate":
            _refuse_alone(recipe.name, field)
        if key == "control":
            chosen[field] = maybe(value)
        elif field in HARDENING:
            change_one(chosen, field, rest, value)
        elif field in PLAIN:
            words[field] = str(value)
    if words["heap"] not in ("all", "last"):
        raise UsageError(f"heap is 'all' (cases of every round) or 'last' (of the last one), got {words['heap']!r}")
    if "train.epochs" in changes and "train.time" not in changes:
        chosen["train"][1].pop("time", None)  # whoever says how many epochs does not mean the recipe's time
        time: Params = {}
    else:
        time = _time_of(recipe, chosen["train"][1])
    select = _bound(HARDENING["select"], chosen["select"], offered)
    train = _bound(HARDENING["train"], chosen["train"], time | offered)
    control = _control(recipe.name, chosen["control"], train, offered, alone=alone)
    return Hardening(select, train, words["suite"], words["heap"], control, alone, _parts(recipe, train, offered))


def _control(name: str, chosen: tuple[Any, Params], train: Bound, offered: Params, *, alone: bool) -> Bound | None:
    """The trainer of the control; a recipe that only trains has one always, since its own can be none."""
    ref, params = chosen
    if ref or alone:
        same = {} if "epochs" in params else {n: train.params.get(n) for n in ("epochs", "time")}
        return bind("trainer", ref or "plain", params, offered | same)
    if params:
        raise UsageError(f"recipe {name} has no control but its own trainer, without cases; name one: control=plain")
    return None


def _time_of(recipe: Recipe, given: Params) -> Params:
    """The time that a recipe trains for, which is also that of another trainer in place of its own."""
    time = maybe(recipe.train)[1].get("time")
    return {} if time is None or "epochs" in given else {"time": time}


def _parts(recipe: Recipe, train: Bound, offered: Params) -> dict[str, Bound]:
    """The trainer without each of the recipe's parts that it has; none where another trainer was put in its place."""
    if train.entry.name != step(recipe.train)[0]:
        return {}
    without: dict[str, Bound] = {}
    for part, change in recipe.parts:
        name, given = step(f"{train.entry.name}({change})" if "=" in change else change)
        known = {p.name for p in lookup("trainer", name)[0].parameters}
        bound = bind("trainer", name, {k: v for k, v in train.params.items() if k in known} | given, offered)
        without |= {part: bound} if bound.text != train.text else {}
    return without


def _refuse_alone(name: str, field: str) -> None:
    """A change of what a recipe that only trains does not have."""
    known = [*FIELDS, *LISTS, *OPTIONAL, *WORDS, *HARDENING, *PLAIN]
    if field in known:
        raise UsageError(f"recipe {name} finds no cases, it trains: {field} says nothing there")
    raise UsageError(f"a recipe has no stage {field!r}; {did_you_mean(field, TRAINING)}")


def found(recipe: str | Recipe) -> Recipe:
    """The recipe of that name."""
    if isinstance(recipe, Recipe):
        return recipe
    known, thing = lookup("recipe", recipe)
    if not isinstance(thing, Recipe):
        raise UsageError(f"{known.name} is {type(thing).__name__}, expected a Recipe")
    return thing


def _bound(kind: str, chosen: tuple[Any, Params], offered: Params) -> Bound:
    ref, params = chosen
    return bind(kind, ref, params, offered)
