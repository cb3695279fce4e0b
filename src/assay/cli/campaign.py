"""A campaign from a TOML file and flags: flag over file over default, unknown keys refused."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.core.errors import UsageError
from assay.core.specs import did_you_mean, value
from assay.recipes.recipe import FIELDS

_KEYS = {
    "run": ("kind", "seed", "unit", "deterministic"),
    "target": ("model", "fingerprint"),
    "data": ("spec", "fingerprint"),
    "recipe": ("name", *FIELDS),
    "budget": ("time", "cases"),
}
_DEFAULTS: dict[str, dict[str, Any]] = {"run": {"kind": "fuzz", "seed": 0}, "recipe": {"name": "noise"}}


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
        return plain | self.tables.get("budget", {})


def campaign_of(file: str | None, flags: dict[str, dict[str, Any]], sets: list[str]) -> Campaign:
    """Defaults, then the file, then the flags that were given."""
    tables = {name: dict(table) for name, table in _DEFAULTS.items()}
    for source in (_read(file) if file else {}, flags):
        for name, table in source.items():
            tables.setdefault(name, {}).update({k: v for k, v in table.items() if v is not None})
    stages = {field: tables["recipe"][field] for field in FIELDS if field in tables["recipe"]}
    changes: dict[str, Any] = {}
    for text in sets:
        key, sign, content = text.partition("=")
        if not sign:
            raise UsageError(f"--set takes key=value, such as schedule.steps=100, got {text!r}")
        changes[key.strip()] = value(content)
    return Campaign(tables, stages | changes)


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
        for key in table:
            if key not in _KEYS[name]:
                raise UsageError(f"{file}: unknown key {key!r} in [{name}]; {did_you_mean(key, _KEYS[name])}")
        table.pop("fingerprint", None)  # facts of the run it came from; a new run finds its own
    return tables


def _needed(tables: dict[str, dict[str, Any]], table: str, key: str, hint: str) -> Any:
    if key not in tables.get(table, {}):
        raise UsageError(f"give {hint} (or {key} in [{table}] of --config)")
    return tables[table][key]
