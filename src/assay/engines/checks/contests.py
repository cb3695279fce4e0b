"""Checks of attacks against each other: a weaker attack must not do what a stronger one cannot."""

from collections.abc import Callable

from assay.core.registry import Bound, register
from assay.core.stats import wilson
from assay.engines.checks.look import Look, beyond
from assay.engines.checks.strength import ball_of, broken_by, longer, ours, stand, steps_of

WEAKER_WINS = 0.05  # share of the right inputs that only the weaker attack breaks
STILL_RISING = 0.1  # share of the right inputs that more steps break
QUERIES = 100


@register("check", needs=("grad",))
def black_box_beats_white_box(look: Look) -> str | None:
    """An attack without gradients breaks inputs that one with gradients leaves standing."""
    told = _met(look, _own_black_box)
    if told is not None:
        name, other, extra, n = told
        if not beyond(extra, n, WEAKER_WINS):
            return None
        what = f"{name} breaks {extra} of {n} inputs that {other} leaves standing"
    else:
        reference, ball = look.once(stand), look.facts.ball
        if reference is None or ball is None or not look.steady or ball.norm not in ("linf", "l2"):
            return None
        search = ours("square", ball, queries=QUERIES)
        extra = broken_by(look, search, reference.held, first=16)
        if not beyond(extra, len(look.few), WEAKER_WINS):
            return None
        what = (
            f"a random search of {QUERIES} queries breaks {extra} of {len(look.few)} inputs that "
            f"{reference.attack.entry.name} leaves standing"
        )
    return f"{what}: gradients are masked, or the gradient attack has far too few steps"


@register("check", needs=("grad",))
def single_step_beats_iterative(look: Look) -> str | None:
    """A single gradient step breaks inputs that many steps leave standing."""
    told = _met(look, lambda attack: steps_of(attack) == 1)
    if told is not None:
        name, other, extra, n = told
    else:
        reference, ball = look.once(stand), look.facts.ball
        if reference is None or ball is None or not look.steady:
            return None
        name, other, n = "fgsm", reference.attack.entry.name, len(look.few)
        extra = broken_by(look, ours("fgsm", ball), reference.held, first=n)
    if not beyond(extra, n, WEAKER_WINS):
        return None
    return (
        f"{name}, a single step, breaks {extra} of {n} inputs that {other} leaves standing: gradients lead astray once "
        "the input has been changed, or the steps are too few and too short"
    )


@register("check", needs=("grad",))
def more_steps_help(look: Look) -> str | None:
    """The attacks of the evaluation had not converged."""
    mine = [a for a in look.facts.attacks.values() if steps_of(a)]
    reference, ball = look.once(stand), look.facts.ball
    if not mine or reference is None or ball is None or not look.steady:
        return None
    used = max(mine, key=steps_of)
    if steps_of(used) > 1:
        before, stronger = reference.held, longer(reference.attack)
        how = f"with {steps_of(stronger)} steps, {reference.attack.entry.name}"
    else:
        before, stronger = look.left_by(used, look.few), reference.attack
        how = f"{stronger.entry.name} with {steps_of(stronger)} steps"
    n, broken = len(look.few), broken_by(look, stronger, before, first=8)
    clean, worst = look.facts.clean.accuracy, look.facts.worst
    now = (len(before) - broken) / n * clean
    # The other attacks of the suite may have broken them already.
    if not beyond(broken, n, STILL_RISING) or (worst is not None and now > worst.accuracy - STILL_RISING / 2):
        return None
    return (
        f"{how} breaks {broken} more of {n} inputs: the attack has not converged, and accuracy is nearer to {now:.2f} "
        "than to what was measured; raise steps"
    )


@register("check", needs=("grad",))
def weak_attacks(look: Look) -> str | None:
    """A plain gradient attack of ours breaks clearly more than the attacks of the evaluation did."""
    reference, worst = look.once(stand), look.facts.worst
    if reference is None or worst is None or not look.steady:
        return None
    left, n = len(reference.held), len(look.few)
    most = wilson(left, n)[1] * look.facts.clean.accuracy
    if most >= worst.accuracy:
        return None
    return (
        f"{reference.attack.entry.name} with {steps_of(reference.attack)} steps leaves {left} of {n} inputs standing, "
        f"the attacks of the evaluation {worst.accuracy:.2f} of all: they are too weak for their number to mean much"
    )


def _own_black_box(attack: Bound) -> bool:
    """Whether it is an attack of ours that takes no gradients; of others' attacks we cannot know."""
    return "grad" not in attack.entry.needs and not attack.from_file and attack.entry.facts is None


def _met(look: Look, weaker: Callable[[Bound], bool]) -> tuple[str, str, int, int] | None:
    """How weaker attacks did against iterative gradient attacks of the same ball in the evaluation itself.

    The names of the two, how many inputs the weaker one breaks beyond the other, and of how many; None where no two
    of them met.
    """
    attacks, outcomes, order = look.facts.attacks, look.facts.outcomes, list(look.facts.attacks)
    found: list[tuple[int, str, str]] = []
    for name, attack in attacks.items():
        others = order[: order.index(name)] if look.facts.cascade else order
        rivals = [o for o in others if o in outcomes and steps_of(attacks[o]) > 1]
        rivals = [o for o in rivals if ball_of(attacks[o]) == ball_of(attack)]
        if name not in outcomes or not weaker(attack) or not rivals:
            continue
        best = min(rivals, key=lambda other: outcomes[other].left.right)
        if not look.facts.cascade:
            found.append((outcomes[best].left.right - outcomes[name].left.right, name, best))
        elif outcomes[name].tried <= outcomes[best].left.right:  # else it is of another part of the suite
            found.append((outcomes[name].broken, name, best))
    if not found:
        return None
    extra, name, other = max(found)
    return name, other, max(extra, 0), look.facts.clean.right
