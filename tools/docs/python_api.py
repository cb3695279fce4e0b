"""The reference of ``import assay``: every exported name with its signature and docstring."""

import dataclasses
import inspect
import re
from typing import Any

from tools.docs.sources import escaped

import assay


def page() -> str:
    """Functions first, then the types they take and give."""
    names = [name for name in assay.__all__ if not name.startswith("_")]
    functions = [name for name in names if inspect.isfunction(getattr(assay, name))]
    types = [name for name in names if inspect.isclass(getattr(assay, name))]
    lines = ["# Python", "", "Everything exported by `import assay`. Made from the code.", ""]
    lines += ["Models and data are strings, as on the command line, or objects: an `nn.Module`, a pair of tensors.", ""]
    for title, group in (("Functions", functions), ("Types", types)):
        lines += [f"## {title}", ""]
        for name in group:
            lines += [f"### {name}", "", "```text", _signature(name, getattr(assay, name)), "```", ""]
            lines += [_text(getattr(assay, name).__doc__), ""]
            lines += _members(getattr(assay, name)) if inspect.isclass(getattr(assay, name)) else []
    return "\n".join(lines) + "\n"


def _signature(name: str, thing: Any) -> str:
    try:
        given = list(inspect.signature(thing).parameters.values())
    except ValueError:  # a class written in C
        return f"assay.{name}"
    if inspect.isclass(thing) and not dataclasses.is_dataclass(thing):
        return f"assay.{name}"
    parts = [_readable(str(p)) for p in given]
    named = [place for place, p in enumerate(given) if p.kind is p.KEYWORD_ONLY]
    if named and not any(p.kind is p.VAR_POSITIONAL for p in given):
        parts.insert(named[0], "*")
    line = f"assay.{name}({', '.join(parts)})"
    return line if len(line) <= 100 else f"assay.{name}(\n" + "".join(f"    {part},\n" for part in parts) + ")"


def _members(thing: Any) -> list[str]:
    """Public methods and properties with a docstring of their own."""
    found = []
    for name, member in sorted(vars(thing).items()):
        inner = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if name.startswith("_") or not getattr(inner, "__doc__", None) or not inspect.isfunction(inner):
            continue
        brackets = "" if isinstance(member, property) else "()"
        found.append(f"- `.{name}{brackets}`: {_text(inner.__doc__).split(chr(10))[0]}")
    return [*found, ""] if found else []


def _readable(text: str) -> str:
    """A parameter without the paths of modules, and without addresses that change from run to run."""
    text = re.sub(r"<function (\w+) at 0x[0-9a-f]+>", r"\1", text)
    text = re.sub(r"<(\w[\w.]*) object at 0x[0-9a-f]+>", r"\1", text)
    return re.sub(r"\b(?:assay|torch|collections|typing|pathlib)(?:\.\w+)*\.(\w+)", r"\1", text)


def _text(text: str | None) -> str:
    plain = inspect.cleandoc(text or "").split("\n>>>")[0]
    return escaped(re.sub(r"``(.+?)``", r"`\1`", plain)).strip()
