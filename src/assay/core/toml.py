"""Writing TOML: the standard library reads it but does not write it."""

import json
from collections.abc import Mapping
from typing import Any

from assay.core.errors import UsageError


def dumps(tables: Mapping[str, Any]) -> str:
    """TOML of nested mappings with text, numbers, booleans and lists; keys keep their order.

    >>> print(dumps({"run": {"seed": 0, "eps": "8/255"}}), end="")
    [run]
    seed = 0
    eps = "8/255"
    """
    return "\n".join(_table(_key(name), table) for name, table in tables.items())


def _table(name: str, table: Mapping[str, Any]) -> str:
    lines = [f"[{name}]"] + [f"{_key(k)} = {_value(v)}" for k, v in table.items() if not isinstance(v, Mapping)]
    inner = [_table(f"{name}.{_key(k)}", v) for k, v in table.items() if isinstance(v, Mapping)]
    return "\n".join(["\n".join(lines) + "\n", *inner])


def _key(text: str) -> str:
    return text if text.replace("_", "").replace("-", "").isalnum() and text.isascii() else _text(text)


def _text(text: str) -> str:
    """A basic string: JSON's escapes are TOML's, and what no terminal should see is escaped as well; what is no Unicode
    is shown by its bytes.
    """
    clean = text.encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else f"\\U{ord(c):08X}" for c in json.dumps(clean, ensure_ascii=False))


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    raise UsageError(f"a configuration cannot hold {value!r}")
