"""The steps of a recipe as they are written, and as changes rewrite them."""

from collections.abc import Collection, Mapping
from typing import Any

from assay.core.errors import UsageError
from assay.core.specs import Params, did_you_mean, split, step, weighted, written
from assay.core.units import number


def without(field: str, given: Any, parameters: Collection[str]) -> list[str]:
    """A list field as texts, with these parameters left to their defaults."""
    texts = []
    for weight, ref, params in members(field, given).values():
        inside = ", ".join(f"{k}={written(v)}" for k, v in params.items() if k not in parameters)
        sign = f"{weight:g} * " if field == "objective" else ""
        texts.append(f"{sign}{ref}({inside})" if inside else f"{sign}{ref}")
    return texts


def maybe(given: Any) -> tuple[Any, Params]:
    """A stage that need not be there: an empty text or ``none`` is no stage."""
    return ("", {}) if given in ("", "none", None) else step(given)


def change_one(chosen: dict[str, Any], field: str, parameter: str, value: Any) -> None:
    if parameter:
        _set(chosen[field][1], parameter, value)
    else:
        chosen[field] = step(value)


def _set(params: Params, path: str, value: Any) -> None:
    """A parameter, or with dots one of a stage that a parameter names: ``of.epochs``."""
    name, _, rest = path.partition(".")
    if not rest:
        params[name] = value
        return
    if not isinstance(params.get(name), str):
        raise UsageError(f"{name} names no stage here whose {rest} could be set; set it whole: {name}=STAGE(…)")
    inner, own = step(params[name])
    _set(own, rest, value)
    params[name] = f"{inner}({', '.join(f'{key}={written(setting)}' for key, setting in own.items())})"


def change_list(chosen: dict[str, Any], field: str, rest: str, value: Any) -> None:
    """``keep=…`` a new list, ``keep.rises.strict`` a parameter of a member, ``objective.fol`` a weight.

    Of seeds that are one step alone, its name may be left out: ``seeds.count``.
    """
    if not rest:
        chosen[field] = members(field, value)
        return
    name, _, parameter = rest.partition(".")
    if field == "seeds" and not parameter and len(chosen[field]) == 1:
        name, parameter = next(iter(chosen[field])), name
    if name not in chosen[field]:
        raise UsageError(f"{field} has no member {name!r}; {did_you_mean(name, chosen[field])}")
    if parameter:
        _set(chosen[field][name][2], parameter, value)
    elif field == "objective":
        chosen[field][name] = (number(value, f"weight of {name}"), *chosen[field][name][1:])
    else:
        raise UsageError(f"set a parameter of it: {field}.{name}.PARAMETER={value}")


def members(field: str, given: Any) -> dict[str, tuple[float, Any, Params]]:
    """Name → (weight, reference, parameters); weights are written ``2 * fol`` or ``-fol``, in objectives only.

    >>> members("objective", "fol, -2 * rivals(k=3)")
    {'fol': (1.0, 'fol', {}), 'rivals': (-2.0, 'rivals', {'k': 3})}
    """
    found: dict[str, tuple[float, Any, Params]] = {}
    for part in split(given) if isinstance(given, str) else [given] if _is_step(given) else given:
        weight, text = 1.0, part
        if field == "objective" and isinstance(part, str):
            weight, text = weighted(part)
        ref, params = step(text)
        name = str(ref).rpartition(":")[2]
        if name in found:
            raise UsageError(f"{field} names {name} twice")
        found[name] = (weight, ref, params)
    return found


def _is_step(given: Any) -> bool:
    """Whether this is one step, a name with its parameters, and not a list of steps."""
    return isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], Mapping)
