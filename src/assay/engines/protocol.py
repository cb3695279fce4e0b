"""The protocol of an evaluation: what a number was measured with, stored beside it."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from assay.core.cases import UNLABELLED
from assay.core.environment import version_of
from assay.core.errors import UsageError
from assay.core.registry import Bound
from assay.core.units import budget
from assay.subjects.bench import Data
from assay.subjects.target import Target

log = logging.getLogger("assay")


def protocol_of(
    model: str,
    target: Target,
    data: Data,
    attacks: Mapping[str, Bound],
    eps: str | float | None,
    *,
    seed: int,
    each: bool,
) -> dict[str, Any]:
    """Model, data, ball, attacks with all their parameters, seed, versions."""
    size, norm = _ball(attacks)
    low, high = data.spec.bounds
    if norm == "linf" and size is not None and size > high - low:
        log.warning("eps %g is larger than the whole range [%g, %g] of the inputs", size, low, high)
    for name, attack in attacks.items():
        reach = attack.params.get("steps", 1) * attack.params.get("step", 1.0)
        if reach < 1:
            log.warning(
                "attack %s cannot reach the edge of its ball: steps × step is %g of eps; raise either", name, reach
            )
    typed = eps is not None and size == budget(eps)
    return {
        "model": model,
        "model_fingerprint": target.fingerprint(),
        "data": data.name,
        "data_fingerprint": data.fingerprint(),
        "n": int((data.cases.y != UNLABELLED).sum()),
        "norm": norm,
        "eps": size,
        "eps_text": str(eps) if typed else None if size is None else f"{size:g}",
        "attacks": {name: attack.text for name, attack in attacks.items()},
        "cascade": not each,
        "seed": seed,
        "assay": version_of("assay"),
        "torch": torch.__version__,
    }


def _ball(attacks: Mapping[str, Bound]) -> tuple[float | None, str | None]:
    """The one eps and norm of a suite: a worst case over different balls would be nobody's robustness."""
    for name, attack in attacks.items():
        if attack.params.get("targeted"):
            raise UsageError(f"attack {name!r} is targeted, and an evaluation has no classes to aim at; leave it out")
    balls = {(a.params["eps"], a.params.get("norm")) for a in attacks.values() if "eps" in a.params}
    if len(balls) > 1:
        shown = "; ".join(f"{eps:g} {norm}" for eps, norm in sorted(balls, key=str))
        raise UsageError(f"the attacks of one suite must share eps and norm, got {shown}; evaluate them one by one")
    return balls.pop() if balls else (None, None)


def to_the_end(attack: Bound) -> Bound:
    """The attack without early stop: examples that barely fool their own model say little of another."""
    if "early_stop" not in attack.params:
        return attack
    return replace(attack, params={**attack.params, "early_stop": False})
