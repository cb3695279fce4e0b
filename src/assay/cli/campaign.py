"""A campaign file (TOML): options of every verb, by what they are about or by the verb.

``[target] [data] [recipe] [ball] [budget] [gate] [run] [ask]`` hold what verbs share: each takes of them what it has an
option for. A table named for a verb holds options of that verb alone, by the names of their flags, and comes over the
others. Flags and environment variables come over the file.
"""

import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.cli.configured import NEVER
from assay.cli.options import settings
from assay.core import trust
from assay.core.command import TABLE
from assay.core.errors import UsageError
from assay.core.specs import did_you_mean, step
from assay.recipes.recipe import FIELDS, LISTS, OPTIONAL, WORDS
from assay.recipes.steps import without

Tables = dict[str, dict[str, Any]]
_LARGEST = 1 << 64

STAGES = (*FIELDS, *LISTS, *OPTIONAL, *WORDS)
# The flags that a key of a shared table stands for, the first that a verb has.
SHARED: dict[str, dict[str, tuple[str, ...]]] = {
    "target": {
        "model": ("model", "models"),
        **{name: (name,) for name in ("with", "resistant", "mean", "std", "white-box")},
    },
    "data": {
        "spec": ("data", "pool"),
        **{name: (name,) for name in ("size", "training", "train", "val", "pool")},
    },
    "recipe": {"name": ("recipe",)},
    "ball": {name: (name,) for name in ("eps", "norm")},
    "budget": {
        name: (name,)
        for name in ("time", "cases", "queries", "rounds", "fuzz-time", "fuzz-cases", "per-round", "call-timeout")
    },
    "gate": {"require": ("require", "until"), "until": ("until",), "baseline": ("baseline",)},
    "run": {
        "name": ("run", "save"),
        **{name: (name,) for name in ("seed", "unit", "deterministic", "confirm", "device", "log")},
    },
    "ask": {"how": ("ask",)},
}
# What a run's own file tells besides: facts, of which a new run finds its own.
FACTS = {
    "run": ("kind",),
    "target": ("fingerprint", "classes", "siblings", "resistant_fingerprint", "built_from"),
    "data": ("fingerprint", "training_fingerprint"),
}


@dataclass(frozen=True, slots=True)
class File:
    """A campaign file that was read."""

    path: str
    tables: Tables

    def defaults(self, verb: str, flags: Collection[str]) -> dict[str, Any]:
        """The value of each of the verb's flags that the file has one for."""
        found: dict[str, Any] = {}
        for name, keys in SHARED.items():
            for key, value in self.tables.get(name, {}).items():
                mine = next((flag for flag in keys.get(key, ()) if flag in flags), None)
                if mine is not None:
                    found[mine] = value
        for key, value in self.tables.get(verb, {}).items():
            if key not in flags:
                raise UsageError(f"{self.path}: unknown key {key!r} in [{verb}]; {did_you_mean(key, flags)}")
            found[key] = value
        return found

    def stages(self, over: Collection[str]) -> dict[str, Any]:
        """The stages that ``[recipe]`` changes, without parameters that are given otherwise."""
        recipe = self.tables.get("recipe", {})
        stages: dict[str, Any] = {}
        for field in (*FIELDS, *OPTIONAL):
            if field in recipe:
                name, params = step(recipe[field] or "none")
                stages[field] = (name, {k: v for k, v in params.items() if k not in over})
        stages |= {word: recipe[word] for word in WORDS if word in recipe}
        return stages | {field: without(field, recipe[field], set(over)) for field in LISTS if field in recipe}


def changes(file: File | None, sets: Sequence[str], offered: Mapping[str, Any]) -> dict[str, Any]:
    """The changes to a recipe: the file's, then those of ``--set``; ``offered`` are flags for any stage that has
    such a parameter.
    """
    over = {name for name, given in offered.items() if given is not None}
    return ({} if file is None else file.stages(over)) | settings(sets, "schedule.steps=100")


def read(file: str, verb: str, verbs: Collection[str]) -> File:
    """The file, checked; that of a run gives the command that made it."""
    path = Path(file)
    if path.is_dir():
        path = path / "campaign.toml"
    if not path.is_file():
        raise UsageError(f"no such file: {file}")
    try:
        content = path.read_bytes()
        tables = tomllib.loads(content.decode())
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # a number of too many digits is a bare ValueError
        raise UsageError(f"{file} is not valid TOML: {error}") from error
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise UsageError(f"{file}: {name} must stand in a table, such as [run]")
    _check_values(tables, file)
    trust.check_config(path, content, tables)
    kind = tables.get("run", {}).get("kind")
    if kind is not None and (kind != "fuzz" or verb != "fuzz"):
        tables = _command_of(tables, str(kind), verb, file)
    elif kind is not None:
        tables.pop(TABLE, None)  # the stages of a fuzzing run say all of it, and more exactly
    return File(file, dict(_checked(tables, file, verbs)))


def _check_values(tables: Tables, file: str) -> None:
    """Refuse values of TOML that no option takes: dates, and whole numbers that no machine has."""
    left: list[tuple[str, Any]] = list(tables.items())
    while left:
        key, value = left.pop()
        if isinstance(value, dict):
            left += value.items()
        elif isinstance(value, list):
            left += ((key, one) for one in value)
        elif isinstance(value, int) and abs(value) > _LARGEST:
            raise UsageError(f"{file}: {key} is too large a number, of {value.bit_length()} bits")
        elif not isinstance(value, str | int | float):
            raise UsageError(f"{file}: {key} cannot be {value!s}, a date or a time")


def _command_of(tables: Tables, kind: str, verb: str, file: str) -> Tables:
    """The options that a run's own file says it was made with."""
    told = dict(tables.get(TABLE, {}))
    if "verb" not in told:
        raise UsageError(f"{file} is of a run of kind {kind!r} that no command line made; write a file of your own")
    made_by = told.pop("verb")
    if made_by != verb:
        raise UsageError(f"{file} is the configuration of a run made by assay {made_by}, not by assay {verb}")
    return {verb: told}


def _checked(tables: Tables, file: str, verbs: Collection[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every table with its keys spelled as flags; what nobody knows is refused."""
    for name, table in tables.items():
        if name not in SHARED and name not in verbs:
            raise UsageError(f"{file}: unknown table [{name}]; {did_you_mean(name, (*SHARED, *verbs))}")
        spelled = {key if key in STAGES else key.replace("_", "-"): value for key, value in table.items()}
        if name in SHARED:
            stages = STAGES if name == "recipe" else ()
            facts = tuple(fact.replace("_", "-") for fact in FACTS.get(name, ()))
            for key, value in spelled.items():
                if key not in (*SHARED[name], *stages, *facts):
                    near = did_you_mean(key, (*SHARED[name], *stages))
                    raise UsageError(f"{file}: unknown key {key!r} in [{name}]; {near}")
                if key in stages:
                    _check_stage(key, value, file)
            spelled = {key: value for key, value in spelled.items() if key not in facts}
        for key in NEVER:
            if key in spelled:
                raise UsageError(f"{file}: {key!r} in [{name}] is for the command line only: --{key}")
        yield name, spelled


def _check_stage(key: str, value: Any, file: str) -> None:
    wanted = str | list if key == "seeds" else list if key in LISTS else str
    if not isinstance(value, wanted):
        raise UsageError(f"{file}: {key} in [recipe] cannot be {value!r}")
