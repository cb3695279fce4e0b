"""Probes of attacks: which one the evaluation leans on, and what it leaves standing."""

from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from assay.core.cases import Cases
from assay.core.registry import Bound, bind
from assay.engines.checks.look import Ball, Look

STEPS = 20  # of our own PGD where the evaluation has no iterative gradient attack
MORE = 3  # times as many steps, to see whether they help


class Stand(NamedTuple):
    """What the reference attack made of the few, and those of them that it did not break."""

    attack: Bound
    made: Tensor
    held: Cases


def stand(look: Look) -> Stand | None:
    """The iterative gradient attack of the evaluation with the most steps, or PGD-20, on the few."""
    ball = look.facts.ball
    if ball is None or not look.white_box or not len(look.few):
        return None
    mine = [a for a in look.facts.attacks.values() if steps_of(a) > 1 and ball_of(a) == (ball.eps, ball.norm)]
    attack = max(mine, key=steps_of, default=ours("pgd", ball, steps=STEPS))
    made = look.attacked(attack, look.few)
    return Stand(attack, made, look.still_right(made, look.few))


def ours(name: str, ball: Ball, **params: int | float) -> Bound:
    """An attack of ours in that ball."""
    return bind("attack", name, {"eps": ball.eps, "norm": ball.norm, **params})


def steps_of(attack: Bound) -> int:
    """Steps of a gradient attack inside a given ball: 1 for a single step, 0 for any other attack."""
    known = {p.name: p for p in attack.entry.parameters}
    if "grad" not in attack.entry.needs or "eps" not in known or known["eps"].default is not None:
        return 0
    steps = attack.params.get("steps", 1)
    return steps if isinstance(steps, int) else 0


def ball_of(attack: Bound) -> tuple[object, object]:
    """Size and norm of the ball that the attack was given."""
    return attack.params.get("eps"), attack.params.get("norm")


def longer(attack: Bound) -> Bound:
    """The same attack with more steps."""
    return replace(attack, params={**attack.params, "steps": MORE * steps_of(attack)})


def broken_by(look: Look, attack: Bound, cases: Cases, first: int) -> int:
    """How many cases the attack breaks; where it breaks none of the first so many, the others are not tried."""
    some = look.left_by(attack, cases[:first])
    if len(some) == len(cases[:first]):
        return 0
    return len(cases) - len(some) - len(look.left_by(attack, cases[first:]))
