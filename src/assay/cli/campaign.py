"""A campaign from a TOML file and flags: flag over file over default, unknown keys refused."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.cli.options import settings
from assay.core.errors import UsageError
from assay.core.specs import did_you_mean, step
from assay.recipes.recipe import FIELDS, LISTS, OPTIONAL, WORDS
from assay.recipes.steps import without

_FACTS = ("resistant_fingerprint", "built_from")
_KEYS = {
    "run": ("kind", "seed", "unit", "deterministic", "confirm"),
    "target": ("model", "fingerprint", "classes", "mean", "std", "white_box", "with", "siblings", "resistant", *_FACTS),
    "data": ("spec", "size", "training", "training_fingerprint", "fingerprint"),
    "recipe": ("name", *FIELDS, *LISTS, *OPTIONAL, *WORDS),
    "budget": ("time", "cases", "queries"),
    "ask": ("how",),
}
_TYPES: dict[str, Any] = {
    "seed": int,
    "unit": int,
    "cases": int,
    "queries": int,
    "white_box": bool,
    "deterministic": bool,
    "time": (str, int, float),
    "classes": list,
    "with": list,
    "siblings": list,
    "mean": list,
    "std": list,
    **dict.fromkeys(LISTS, list),
    "seeds": (str, list),
}
_DEFAULTS: dict[str, dict[str, Any]] = {"run": {"kind": "fuzz", "seed": 0}, "recipe": {"name": "noise"}, "ask": {}}


@dataclass(frozen=True, slots=True)
class Campaign:
    """A resolved campaign."""

    tables: dict[str, dict[str, Any]]
    changes: dict[str, Any]

    @property
    def model(self) -> str:
        return str(_needed(self.tables, "target", "model", "a model: assay fuzz MODEL --data D"))

    @property
    def data(self) -> str:
        return str(_needed(self.tables, "data", "spec", "--data"))

    @property
    def recipe(self) -> str:
        return str(self.tables["recipe"]["name"])

    @property
    def settings(self) -> dict[str, Any]:
        """What the engine takes by the same name."""
        plain = {k: v for k, v in self.tables.get("run", {}).items() if k != "kind"}
        models: dict[str, Any] = {k: tuple(v) for k, v in self.tables["target"].items() if k in ("mean", "std")}
        models |= {"siblings": tuple(self.tables["target"].get("with", ()))}
        models |= {"resistant": self.tables["target"].get("resistant")}
        models |= {"white_box": bool(self.tables["target"].get("white_box")), "ask": self.tables["ask"].get("how", "")}
        size = {k: v for k, v in self.tables["data"].items() if k in ("size", "training")}
        return plain | models | size | self.tables.get("budget", {})


def campaign_of(
    file: str | None, flags: dict[str, dict[str, Any]], sets: list[str], offered: dict[str, Any]
) -> Campaign:
    """Defaults, then the file, then the flags that were given; ``offered`` are those for any stage that takes them."""
    tables = {name: dict(table) for name, table in _DEFAULTS.items()}
    for source in (_read(file) if file else {}, flags):
        for name, table in source.items():
            tables.setdefault(name, {}).update({k: v for k, v in table.items() if v is not None})
    over = {name for name, given in offered.items() if given is not None}
    stages: dict[str, Any] = {}
    for field in (*FIELDS, *OPTIONAL):
        if field in tables["recipe"]:
            name, params = step(tables["recipe"][field] or "none")
            stages[field] = (name, {k: v for k, v in params.items() if k not in over})
    stages |= {word: tables["recipe"][word] for word in WORDS if word in tables["recipe"]}
    for field in LISTS:
        if field in tables["recipe"]:
            stages[field] = without(field, tables["recipe"][field], over)
    return Campaign(tables, stages | settings(sets, "schedule.steps=100"))


def _read(file: str) -> dict[str, dict[str, Any]]:
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"no such file: {file}")
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not valid TOML: {error}") from error
    for name, table in tables.items():
        if name not in _KEYS:
            raise UsageError(f"{file}: unknown table [{name}]; {did_you_mean(name, _KEYS)}")
        if not isinstance(table, dict):
            raise UsageError(f"{file}: {name} must be a table")
        for key, given in table.items():
            if key not in _KEYS[name]:
                raise UsageError(f"{file}: unknown key {key!r} in [{name}]; {did_you_mean(key, _KEYS[name])}")
            wanted = _TYPES.get(key, str)
            if not isinstance(given, wanted) or (isinstance(given, bool) and wanted is not bool):
                raise UsageError(f"{file}: {key} in [{name}] cannot be {given!r}")
        if table.get("kind", "fuzz") != "fuzz":
            raise UsageError(f"{file} is the configuration of a run of kind {table['kind']!r}, not of a fuzzing run")
        for fact in ("fingerprint", "classes", "siblings", "training_fingerprint", *_FACTS):
            table.pop(fact, None)  # facts of the run it came from; a new run finds its own
    return tables


def _needed(tables: dict[str, dict[str, Any]], table: str, key: str, hint: str) -> Any:
    if key not in tables.get(table, {}):
        raise UsageError(f"give {hint} (or {key} in [{table}] of --config)")
    return tables[table][key]
