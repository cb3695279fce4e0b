"""Names: every stage, recipe, net and data set is found by the name of its function.

Our own files are listed by reading them, not by importing them, so ``assay list`` needs no torch; a file is
imported when something of it is used. A new file with a decorated function is registered by existing.
"""

import dataclasses
import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar, get_args

from assay.core.entries import DATA_KINDS, FOLDERS, Entry, Parameter, first_line, read_folder
from assay.core.errors import AssayError, UsageError, is_out_of_memory
from assay.core.specs import Params, canonical, did_you_mean, python_file, written
from assay.core.units import number
from assay.core.userfile import load_object

# Where objects made by other libraries become stages of a kind, imported when one comes along.
ADAPTERS = {"attack": "assay.stages.attacks.foreign:adapted"}

ENGINE_ARGUMENTS = ("rng", "watch")  # keyword arguments that engines fill in, not users

Function = TypeVar("Function", bound=Callable[..., Any])


_runtime: dict[tuple[str, str], tuple[Entry, Any]] = {}


# Parameters that stages got when there were runs of theirs already. Texts leave them out where they are as usual: a run
# is known by its texts, and one from before is to be the same run still.
LATER: dict[tuple[str, str], frozenset[str]] = {
    ("attack", "pgd"): frozenset({"converged", "falling"}),
    ("trainer", "adversarial"): frozenset({"awp", "distil", "guard", "temperature", "time", "warm"}),
    ("trainer", "plain"): frozenset({"time"}),
    ("trainer", "resistant"): frozenset({"time"}),
    **{("trainer", name): frozenset({"distil", "temperature", "time", "warm"}) for name in ("dynamic", "fast")},
    **{("trainer", name): frozenset({"distil", "guard", "temperature", "time", "warm"}) for name in ("mart", "trades")},
}


def register(
    kind: str, *, name: str = "", paper: str = "", needs: tuple[str, ...] = (), gradients: int = 0
) -> Callable[[Function], Function]:
    """Decorator that puts a function on the list of its kind, under its own name unless ``name`` is given.

    ``needs`` says what the target must give (grad, logit, ...); ``gradients`` how many it takes per case,
    where no parameter says so.
    """
    _check_kind(kind)

    def decorate(function: Function) -> Function:
        told = _entry_of(kind, function, name)
        told = dataclasses.replace(told, paper=paper, needs=needs, gradients=gradients)
        for other in entries(kind):
            same = canonical(other.name) == canonical(told.name)
            if same and (other.module, other.attribute) != (told.module, told.attribute):
                raise UsageError(f"{kind} {told.name!r} is registered by {other.module} already; choose another name")
        _runtime[kind, canonical(told.name)] = (told, function)
        return function

    return decorate


def _entry_of(kind: str, function: Callable[..., Any], name: str = "") -> Entry:
    """What a function says of itself."""
    parameters = tuple(
        Parameter(p.name, _annotation(p.annotation), None if p.default is p.empty else repr(p.default))
        for p in inspect.signature(function).parameters.values()
        if p.kind is p.KEYWORD_ONLY
    )
    own = getattr(function, "__name__", type(function).__name__)  # a partial has no name
    module = getattr(function, "__module__", "")
    return Entry(kind, name or own, first_line(function.__doc__), module, own, parameters)


def entries(kind: str) -> list[Entry]:
    """Every registered entry of a kind, by name: ours, those of installed packages, and those made in this process."""
    _check_kind(kind)
    found = {canonical(e.name): e for e in (*_installed(kind), *read_folder(kind))}
    found.update({key: entry for (k, key), (entry, _) in _runtime.items() if k == kind})
    return sorted(found.values(), key=lambda e: e.name)


def names(kind: str) -> list[str]:
    """The names of a kind, sorted."""
    return [entry.name for entry in entries(kind)]


def entry(kind: str, name: str) -> Entry:
    """The entry of that name; an unknown one is a usage error that names the nearest right one."""
    for found in entries(kind):
        if canonical(found.name) == canonical(name):
            return found
    raise UsageError(f"unknown {kind} {name!r}; {did_you_mean(name, names(kind))}")


def lookup(kind: str, ref: Any) -> tuple[Entry, Any]:
    """The entry and the object behind a name, ``file.py:function``, or an object of another library."""
    if not isinstance(ref, str):
        found = _adapted(kind, ref)
        if found is None:
            raise UsageError(f"{type(ref).__name__} is no {kind}: give its name, or file.py:function")
        return found
    place = python_file(ref)
    if place is not None:
        return _from_file(kind, *place)
    known = entry(kind, ref)
    if (kind, canonical(known.name)) in _runtime:
        return _runtime[kind, canonical(known.name)]
    thing = getattr(importlib.import_module(known.module), known.attribute)
    if (kind, canonical(known.name)) in _runtime:  # importing ran the decorator, whose entry is the better one
        return _runtime[kind, canonical(known.name)]
    if kind in DATA_KINDS.values():
        return known, thing
    return dataclasses.replace(_entry_of(kind, thing), name=known.name), thing


@dataclass(frozen=True, slots=True)
class Bound:
    """A stage with its parameters: what a run writes down and calls."""

    entry: Entry
    function: Callable[..., Any]
    params: Mapping[str, Any]

    def __call__(self, *args: Any, **extra: Any) -> Any:
        if not self.from_file:
            return self.function(*args, **self.params, **extra)
        try:
            return self.function(*args, **self.params, **extra)
        except (AssayError, MemoryError):
            raise
        except Exception as error:  # the user's own code; running out of memory is still ours to handle
            if is_out_of_memory(error):
                raise
            raise UsageError(f"{self.entry.name} failed: {type(error).__name__}: {error}") from error

    @property
    def from_file(self) -> bool:
        """Whether it is a function of the user's own file."""
        return python_file(self.entry.name) is not None and self.entry.facts is None

    @property
    def text(self) -> str:
        """``name(key=value, ...)``, which reads back to the same thing unless it is another library's object."""
        usual = {p.name: p.default for p in self.entry.parameters}
        later = LATER.get((self.entry.kind, self.entry.name), frozenset())
        told = {**(self.entry.facts or {}), **self.params}
        told = {k: v for k, v in told.items() if k not in later or repr(v) != usual.get(k)}
        inside = ", ".join(f"{k}={written(v)}" for k, v in sorted(told.items()))
        return f"{self.entry.name}({inside})" if inside else self.entry.name


def bind(kind: str, ref: Any, params: Mapping[str, Any], offered: Mapping[str, Any] | None = None) -> Bound:
    """The stage of that name with checked parameters.

    ``offered`` values are taken where the stage has such a parameter and ``params`` does not set it.
    """
    known, function = lookup(kind, ref)
    allowed = {p.name: p for p in known.parameters if p.name not in ENGINE_ARGUMENTS}
    for key in params:
        if key not in allowed:
            raise UsageError(f"{kind} {known.name!r} has no parameter {key!r}; {did_you_mean(key, allowed)}")
    chosen: Params = {k: v for k, v in (offered or {}).items() if k in allowed and v is not None} | dict(params)
    missing = [p.name for p in allowed.values() if p.default is None and p.name not in chosen]
    if missing:
        raise UsageError(f"{kind} {known.name!r} needs {', '.join(missing)}; give it as --{missing[0]} or in brackets")
    defaults = {n: p.default for n, p in inspect.signature(function).parameters.items() if n in allowed}
    return Bound(known, function, {k: _typed(known, p, chosen.get(k, defaults[k])) for k, p in allowed.items()})


def _from_file(kind: str, path: Path, name: str) -> tuple[Entry, Any]:
    thing = load_object(path, name)
    if kind in DATA_KINDS.values():
        return Entry(kind, f"{path}:{name}", "", str(path), name), thing
    foreign = _adapted(kind, thing)
    if foreign is not None:
        facts = {"object": foreign[0].name, **(foreign[0].facts or {})}
        return dataclasses.replace(foreign[0], name=f"{path}:{name}", facts=facts), foreign[1]
    if not callable(thing):
        raise UsageError(f"{path}:{name} is not a function")
    told = next((e for (k, _), (e, f) in _runtime.items() if k == kind and f is thing), None)
    # The run writes down where it came from, whatever the function calls itself.
    return dataclasses.replace(told or _entry_of(kind, thing), name=f"{path}:{name}"), thing


def _adapted(kind: str, thing: Any) -> tuple[Entry, Any] | None:
    """A stage made of an object of another library, None where it is of no library that is known."""
    if kind not in ADAPTERS:
        return None
    module, _, name = ADAPTERS[kind].partition(":")
    found: tuple[Entry, Any] | None = getattr(importlib.import_module(module), name)(thing)
    return found


def _typed(known: Entry, parameter: Parameter, value: Any) -> Any:
    """The value in the type its annotation names; JSON has one number type and no tuples, text gives fractions."""
    wanted = parameter.type.split(" | ")
    if value is None and "None" in wanted:
        return None
    for kind in wanted:
        if kind == "float" and isinstance(value, (int, float, str)) and not isinstance(value, bool):
            return number(value, f"{known.name}: {parameter.name}")
        if kind.startswith("tuple") and isinstance(value, (list, tuple)):
            return tuple(value)
        simple = {"int": int, "str": str, "bool": bool}.get(kind)
        if simple is not None and isinstance(value, simple) and (simple is bool or not isinstance(value, bool)):
            return value
    if not {"int", "float", "str", "bool"}.isdisjoint(wanted) or parameter.type.startswith("tuple"):
        raise UsageError(f"{known.kind} {known.name!r}: {parameter.name} must be {parameter.type}, got {value!r}")
    return value


def _check_kind(kind: str) -> None:
    if kind not in FOLDERS:
        raise UsageError(f"unknown kind {kind!r}; {did_you_mean(kind, FOLDERS)}")


@functools.cache
def _installed(kind: str) -> tuple[Entry, ...]:
    """What other packages bring; reading their metadata is slow, and no package comes while we run."""
    points = entry_points(group=f"assay.{kind}")
    return tuple(Entry(kind, p.name, f"from {p.value}", p.module, p.attr) for p in points)


def _annotation(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    if isinstance(annotation, str):
        return annotation
    return annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)
