"""The little language of names: ``pgd(steps=40)``, ``fgsm,pgd``, ``file.py:function``, ``mnist/test[:500]``."""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from numbers import Number
from pathlib import Path
from typing import Any

from assay.core.errors import UsageError
from assay.core.units import number

Params = dict[str, Any]
Step = str | tuple[str, Mapping[str, Any]]


def did_you_mean(wrong: str, right: Iterable[str]) -> str:
    """A hint that names the nearest right word, or all of them when none is near.

    >>> did_you_mean("pdg", ["fgsm", "pgd"])
    "did you mean 'pgd'?"
    """
    known = sorted(right)
    near = difflib.get_close_matches(wrong, known, n=1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known: {', '.join(known)}" if known else "none is known"


def canonical(name: str) -> str:
    """The key of a name: ``-`` and ``_`` are one character."""
    return name.replace("-", "_")


def value(text: str) -> Any:
    """A parameter's value: JSON where it is JSON, a fraction where it is one, else the text itself."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        if re.fullmatch(r"\s*\d+(\.\d+)?\s*/\s*\d+(\.\d+)?\s*", text):
            return number(text)
        return {"True": True, "False": False}.get(text.strip(), text.strip())


def written(thing: Any) -> str:
    """A value as it is written in brackets: it reads back as the same value."""
    if isinstance(thing, str) and re.fullmatch(r"[\w.:+-][\w.:+ -]*", thing) and value(thing) == thing:
        return thing
    return json.dumps(list(thing) if isinstance(thing, tuple) else thing)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no value of a parameter")


def split(text: str) -> list[str]:
    """The parts of a comma list; commas inside brackets or double quotes do not part.

    >>> split("fgsm, pgd(steps=40, step=0.1)")
    ['fgsm', 'pgd(steps=40, step=0.1)']
    """
    parts, depth, start, quoted, escaped = [], 0, 0, False, False
    for i, c in enumerate(text):
        quoted ^= c == '"' and not escaped
        escaped = quoted and c == "\\" and not escaped
        depth += 0 if quoted else (c in "([{") - (c in ")]}")
        if depth < 0:
            break
        if c == "," and depth == 0 and not quoted:
            parts.append(text[start:i])
            start = i + 1
    if depth or quoted:
        raise UsageError(f"brackets do not match in {text!r}")
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def step(text: Any) -> tuple[Any, Params]:
    """The name and parameters of ``name`` or ``name(key=value, ...)``; an object of another library is its own name.

    >>> step("pgd(steps=40, norm=l2)")
    ('pgd', {'steps': 40, 'norm': 'l2'})
    """
    if not isinstance(text, str):
        if isinstance(text, (tuple, list)) and len(text) == 2:
            return text[0], dict(text[1])
        if not isinstance(text, (type, type(None), Number, Iterable)):
            return text, {}
        raise UsageError(f"expected a name or name(key=value, ...), got {text!r}")
    match = re.fullmatch(r"\s*([^()\s][^()]*?)\s*(?:\((.*)\))?\s*", text, re.DOTALL)
    if match is None:
        raise UsageError(f"cannot read {text!r}; write name or name(key=value, ...)")
    params: Params = {}
    for part in split(match[2] or ""):
        key, sign, content = part.partition("=")
        if not sign:
            raise UsageError(f"{part!r} in {text!r} is not key=value")
        if key.strip() in params:
            raise UsageError(f"{key.strip()!r} is set twice in {text!r}")
        params[key.strip()] = value(content)
    return match[1], params


def weighted(text: str) -> tuple[float, str]:
    """The weight and the rest of ``2 * fol`` or ``-fol``.

    >>> weighted("-2 * rivals(k=3)")
    (-2.0, 'rivals(k=3)')
    """
    match = re.fullmatch(r"\s*(-)?\s*(?:([0-9.eE+-]+)\s*\*)?\s*(.+)", text, re.DOTALL)
    if match is None:
        raise UsageError("expected a name, or WEIGHT * name(key=value, ...), got nothing")
    return number(match[2] or 1.0, f"weight in {text!r}") * (-1 if match[1] else 1), match[3]


def steps(texts: Any) -> list[tuple[Any, Params]]:
    """The steps of a comma list, of a sequence, or of one object of another library."""
    if isinstance(texts, str):
        return [step(part) for part in split(texts)]
    return [step(part) for part in (texts if isinstance(texts, Iterable) else [texts])]


def sliced(text: str) -> tuple[str, slice]:
    """A spec and the slice behind it.

    >>> sliced("mnist/test[:500]")
    ('mnist/test', slice(None, 500, None))
    """
    match = re.fullmatch(r"(.*?)\[([^\]]*)\]", text)
    if match is None:
        return text, slice(None)
    parts = match[2].split(":")
    if not 1 < len(parts) <= 3 or not all(re.fullmatch(r"\s*(-?\d+)?\s*", part) for part in parts):
        raise UsageError(f"a slice is written as [:500], [100:] or [::2], got [{match[2]}]")
    numbers = [int(part) if part.strip() else None for part in parts]
    if len(numbers) == 3 and numbers[2] is not None and numbers[2] <= 0:
        raise UsageError(f"a slice steps forward, got [{match[2]}]")
    return match[1], slice(*numbers)


def python_file(text: str) -> tuple[Path, str] | None:
    """The file and function of ``file.py:function``, or None where the text is something else."""
    match = re.fullmatch(r"(.+\.py):([A-Za-z_]\w*)", text)
    return (Path(match[1]), match[2]) if match else None
