"""Whether two configurations are those of one run."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from assay.core.command import TABLE
from assay.core.errors import UsageError
from assay.core.files import canonical_json

Config = Mapping[str, Mapping[str, Any]]
# Raising a budget or a requirement, or asking a black box at another rate, continues a run; everything else is what
# makes it this run.
NOT_IDENTITY = ("budget", "gate", "ask", TABLE)


def identity(config: Config) -> dict[str, Any]:
    """The part of a configuration that makes two runs the same run."""
    kept: dict[str, Any] = json.loads(canonical_json({k: v for k, v in config.items() if k not in NOT_IDENTITY}))
    return kept


def check_same(name: str, was: Mapping[str, Any], config: Config) -> None:
    """Refuse another configuration on an existing run, showing the difference."""
    asked = identity(config)
    if was == asked:
        return
    left, right = dict(_flat(was)), dict(_flat(asked))
    rows = [
        f"  {key}: {left.get(key, '(unset)')!s} in the run, {right.get(key, '(unset)')!s} asked"
        for key in sorted(left.keys() | right.keys())
        if left.get(key) != right.get(key)
    ]
    raise UsageError(
        f"run {name} was made with another configuration; use --fresh for a new run, or another name\n"
        + "\n".join(rows)
    )


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
