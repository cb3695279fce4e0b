"""The protocol of an evaluation: what a number was measured with, stored beside it."""

import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from assay.core.cases import UNLABELLED
from assay.core.environment import version_of
from assay.core.errors import UsageError
from assay.core.registry import Bound
from assay.stages.attacks.climb import strides
from assay.subjects.bench import Data
from assay.subjects.target import Target

log = logging.getLogger("assay")


def protocol_of(
    model: str,
    target: Target,
    data: Data,
    attacks: Mapping[str, Bound],
    eps_text: str | None,
    *,
    seed: int,
    each: bool,
    curve: bool,
) -> dict[str, Any]:
    """Model, data, ball, attacks with all their parameters, seed, versions."""
    size, norm = _ball(attacks, curve=curve)
    warn_of_large(size, norm, data)
    for name, attack in attacks.items():
        told = attack.params
        lengths = strides(told.get("steps", 1), told.get("step", 1.0), falling=told.get("falling", False))
        if (reach := math.fsum(lengths)) < 1:
            log.warning(
                "attack %s cannot reach the edge of its ball: its steps add up to %g of eps; raise steps or step",
                name,
                reach,
            )
    return {
        "model": model,
        "model_fingerprint": target.fingerprint(),
        "data": data.name,
        "data_fingerprint": data.fingerprint(),
        "n": int((data.cases.y != UNLABELLED).sum()),
        "norm": norm,
        "eps": size,
        "eps_text": eps_text if size is None or eps_text is not None else f"{size:g}",
        "attacks": {name: attack.text for name, attack in attacks.items()},
        "cascade": not each,
        "seed": seed,
        "assay": version_of("assay"),
        "torch": torch.__version__,
    }


def warn_of_large(size: float | None, norm: str | None, data: Data) -> None:
    """Tell of a ball that holds every input there is."""
    low, high = data.spec.bounds
    if norm == "linf" and size is not None and size > high - low:
        log.warning("eps %g is larger than the whole range [%g, %g] of the inputs", size, low, high)


def _ball(attacks: Mapping[str, Bound], *, curve: bool) -> tuple[float | None, str | None]:
    """The one eps and norm of a suite: a worst case over different balls would be nobody's robustness.

    A ``curve`` has several eps, and the largest is that of its worst case.
    """
    for name, attack in attacks.items():
        if attack.params.get("targeted"):
            raise UsageError(f"attack {name!r} is targeted, and an evaluation has no classes to aim at; leave it out")
    balls = {(a.params["eps"], a.params.get("norm", "linf")) for a in attacks.values() if "eps" in a.params}
    free = [name for name, attack in attacks.items() if "eps" not in attack.params]
    if balls and free:
        raise UsageError(
            f"{', '.join(free)} has no eps, so nothing keeps it in the ball of the others; evaluate it by itself"
        )
    if curve and len({norm for _, norm in balls}) == 1:
        return max(balls)
    if len(balls) > 1:
        shown = "; ".join(f"{'no eps' if eps is None else f'{eps:g}'} {norm}" for eps, norm in sorted(balls, key=str))
        raise UsageError(f"the attacks of one suite must share eps and norm, got {shown}; evaluate them one by one")
    return balls.pop() if balls else (None, None)


# What may differ between two numbers that are still compared: the model, and the versions that computed them.
_FREE = {"model", "model_fingerprint", "assay", "torch", "data"}


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """In what two protocols differ so that their numbers must not be compared; the same data may have two names."""
    keys = [key for key in (*one, *(k for k in other if k not in one)) if key not in _FREE and key != "eps_text"]
    return [f"{key} {one.get(key)} and {other.get(key)}" for key in keys if _told(one, key) != _told(other, key)]


def _told(protocol: Mapping[str, Any], key: str) -> Any:
    """A value in which the order of attacks counts: in a cascade it decides what each of them sees."""
    value = protocol.get(key)
    return list(value.items()) if isinstance(value, Mapping) else value


def portable(label: str, attack: Bound) -> None:
    """Refuse an object of another library that attacks the model it was made with where it should attack another."""
    if attack.entry.own_model:
        raise UsageError(f"attack {label!r} attacks the model it was made with and cannot make examples on another")


def to_the_end(attack: Bound) -> Bound:
    """The attack without early stop: examples that barely fool their own model say little of another."""
    if "early_stop" not in attack.params:
        return attack
    return replace(attack, params={**attack.params, "early_stop": False})
