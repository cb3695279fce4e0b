"""Checks of how accuracy falls as the ball grows."""

import math
from typing import NamedTuple

from assay.core.registry import register
from assay.engines.checks.look import Ball, Look, beyond
from assay.engines.checks.strength import ours, stand

GROWTH = 4  # from one radius to the next
STEPS, STEP = 10, 0.25
STILL_RIGHT = 0.05  # share of the right inputs that may stand when all of the range is allowed
FALL = 0.5  # share of the accuracy that must go between eps and half the range


class Rung(NamedTuple):
    """How many of the few stand at a radius."""

    radius: float
    left: int


@register("check", needs=("grad",))
def full_range(look: Look) -> str | None:
    """Accuracy does not reach zero when attacks may change everything."""
    rungs = look.once(ladder)
    if not rungs or not beyond(rungs[-1].left, len(look.few), STILL_RIGHT):
        return None
    return (
        f"{rungs[-1].left} of {len(look.few)} inputs withstand a gradient attack that may change everything (eps "
        f"{rungs[-1].radius:g}): it is the attack that fails, not the net that is robust"
    )


@register("check", needs=("grad",))
def flat_curve(look: Look) -> str | None:
    """Accuracy hardly falls from eps to half the range of the inputs."""
    rungs = look.once(ladder)
    first = rungs[0] if rungs else None
    half = next((rung for rung in rungs if rung.radius >= _whole(look) / 2), None)
    if first is None or half is None or half.radius < GROWTH * first.radius:
        return None
    if half.left <= FALL * first.left or not beyond(half.left, len(look.few), STILL_RIGHT):
        return None
    return (
        f"accuracy hardly falls as eps grows: of {len(look.few)} inputs {first.left} stand at {first.radius:g} and "
        f"{half.left} at {half.radius:g}, where every input can be turned into the same one"
    )


def ladder(look: Look) -> list[Rung]:
    """How many of the few stand as the ball grows from eps to the whole range; a row broken once is out."""
    reference, ball = look.once(stand), look.facts.ball
    whole = _whole(look)
    if reference is None or ball is None or not look.steady or ball.eps <= 0 or ball.eps >= whole:
        return []
    radii, radius = [], GROWTH * ball.eps
    while radius < whole / 2:
        radii.append(radius)
        radius *= GROWTH
    left = reference.held
    rungs = [Rung(ball.eps, len(left))]
    for radius in [*radii, *([whole / 2] if ball.eps < whole / 2 else []), whole]:
        left = look.left_by(ours("pgd", Ball(radius, ball.norm), steps=STEPS, step=STEP), left)
        rungs.append(Rung(radius, len(left)))
    return rungs


def _whole(look: Look) -> float:
    """The radius of a ball that holds every input there is."""
    low, high = look.target.spec.bounds
    entries = float(look.sample.x[0].numel())
    sides = {"linf": 1.0, "l2": math.sqrt(entries), "l1": entries, "l0": entries}
    return (high - low) * sides[look.near.norm]
