"""Can this number be trusted? Named checks, shown beside the number they spoil; docs/checks.md explains each.

A check is a function ``(look) -> message or None``. It looks at the target through a :class:`~.look.Look`, so that
what one check has asked of the target serves the others too.
"""

from collections.abc import Collection, Mapping

from assay.core import norms
from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import Bound, entries, lookup, names
from assay.core.specs import canonical, did_you_mean
from assay.engines.checks.look import SAMPLE, Ball, Facts, Look, spread
from assay.engines.checks.strength import STEPS, ours
from assay.engines.evaluation import Evaluation, Share
from assay.subjects.asked import Asked
from assay.subjects.target import Target, answer

KNOWN_NORMS = ("linf", "l2", "l1")  # those that the attacks of the probes know


def warnings_of(
    target: Target,
    cases: Cases,
    result: Evaluation,
    attacks: Mapping[str, Bound],
    rng: Stream,
    suppressed: Collection[str] = (),
) -> list[dict[str, str]]:
    """Every check of an evaluation that fired: its name, what it found, and where it is explained."""
    ball = _ball(attacks)
    worst = result.worst if ball is None else result.curve.get(ball.eps, result.worst)
    facts = Facts(result.clean, attacks, ball, result.attacks, worst, bool(result.protocol["cascade"]))
    return _fired(Look(target, cases, facts, rng), suppressed)


def checks_only(
    target: Target,
    cases: Cases,
    eps: float | None,
    norm: str,
    rng: Stream,
    suppressed: Collection[str] = (),
) -> list[dict[str, str]]:
    """The same without an evaluation: attacks are those of the probes, and without eps only what needs no ball."""
    known = norms.check(norm, eps)
    ball = Ball(eps, known) if eps and known in KNOWN_NORMS else None
    attacks = {} if ball is None else {"pgd": ours("pgd", ball, steps=STEPS)}
    some = spread(cases, 4 * SAMPLE).to(target.device)
    right = int((answer(target, some.x, Chunks(SAMPLE)).argmax(1) == some.y).sum())
    facts = Facts(Share(right, len(some)), attacks, ball, {}, None, cascade=True)
    return _fired(Look(target, cases, facts, rng), suppressed)


def ignored(suppressed: Collection[str]) -> frozenset[str]:
    """The names of checks not to be made; an unknown one is a usage error. To be asked before long work, too."""
    known = {canonical(name): name for name in names("check")}
    for name in suppressed:
        if canonical(name) not in known:
            raise UsageError(f"unknown check {name!r}; {did_you_mean(name, known.values())}")
    return frozenset(known[canonical(name)] for name in suppressed)


def not_made(target: Target) -> dict[str, str]:
    """The checks that this target does not allow, each with the reason."""
    reasons = {}
    for entry in entries("check"):
        missing = sorted(set(entry.needs) - set(target.gives))
        if missing:
            reasons[entry.name] = f"needs {', '.join(missing)}"
    if "grad" not in target.gives:
        reasons["wrong_range"] = "would send inputs outside their range"
    if isinstance(target, Asked):
        unseen = "looks into a torch module"
        reasons |= {"train_mode": unseen, "batch_norm_changing": unseen, "softmax_output": "needs logit"}
        reasons["batch_dependent"] = "no input is asked twice: answers are kept"
        if target.repeats == 1:
            reasons["randomised"] = "every input is asked once; --ask repeats=3 would tell"
    return dict(sorted(reasons.items()))


def _fired(look: Look, suppressed: Collection[str]) -> list[dict[str, str]]:
    skipped = {*ignored(suppressed), *not_made(look.target)}
    fired = []
    with look.target.ready():
        for name in names("check"):
            message = None if name in skipped else lookup("check", name)[1](look)
            if message is not None:
                fired.append({"name": name, "message": message, "see": f"docs/checks.md#{name}"})
    return fired


def _ball(attacks: Mapping[str, Bound]) -> Ball | None:
    """The ball of the evaluation; of a curve over several sizes the middle one."""
    balls = sorted({(a.params["eps"], str(a.params.get("norm", "linf"))) for a in attacks.values() if _sized(a)})
    if not balls:
        return None
    eps, norm = balls[len(balls) // 2]
    return Ball(eps, norms.check(norm))


def _sized(attack: Bound) -> bool:
    return bool(attack.params.get("eps")) and attack.params.get("norm", "linf") in KNOWN_NORMS
