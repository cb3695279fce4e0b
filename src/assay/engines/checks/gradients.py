"""Checks of gradients."""

import torch
from torch import Tensor

from assay.core.losses import log_odds
from assay.core.registry import register
from assay.engines.checks.look import Look, width
from assay.engines.checks.slopes import gradient, jumps, lost, slopes
from assay.engines.checks.strength import stand
from assay.subjects.sources.module import looks_like_probabilities

# What honest nets show is written in docs/checks.md beside each of these.
SOME_ROWS = 0.1  # share of inputs from which on we warn
UNDERFLOW = 104.0  # exp(-104) is 0 in single precision
PILE = 0.01  # of the spread of all scores: how near to the highest the top scores of most inputs may lie
PILED = 8  # inputs that it takes to see it
JUMP = 0.02  # of the spread of a row's scores
FAR = 0.25  # of the range of the inputs: noise that a switch would notice


@register("check", needs=("grad",))
def zero_gradient(look: Look) -> str | None:
    """Gradients are zero or undefined, at clean inputs or around them."""
    if not look.white_box or not len(look.few):
        return None
    shares = {slope.where: _share(slope.lost) for slope in look.once(slopes)}
    reference = look.once(stand)
    if reference is not None:
        name = reference.attack.entry.name
        shares[f"inputs that {name} has changed"] = _share(lost(gradient(look, reference.made, look.few.y)))
    where, share = max(shares.items(), key=lambda item: item[1])
    if share <= SOME_ROWS:
        return None
    return f"{100 * share:.0f} % of {where} have a zero or undefined gradient: gradient attacks cannot work on them"


@register("check", needs=("grad",))
def vanishing_gradient(look: Look) -> str | None:
    """Gradients are too small to use, or do not lead uphill."""
    if not look.white_box or not len(look.few) or not look.steady:
        return None
    return _underflowing(look) or _saturated(look) or _useless(look)


@register("check", needs=("grad",))
def discontinuous(look: Look) -> str | None:
    """Answers jump between an input and its neighbours, which gradients cannot see."""
    if not look.white_box or not len(look.few) or not look.steady:
        return None
    low, high = look.target.spec.bounds
    sign = look.rows(look.few, "corner").normal(tuple(look.few.x.shape[1:])).sign().to(look.few.x.dtype)
    ends = {"noise": (look.few.x + FAR * (high - low) * sign).clamp(low, high)}
    reference = look.once(stand)
    if reference is not None:
        ends[reference.attack.entry.name] = reference.made
    for name, end in ends.items():
        share = _share(jumps(look, look.few.x, end) > max(JUMP, 2 * look.grain))
        if share > SOME_ROWS:
            return (
                f"on the way from {100 * share:.0f} % of inputs to what {name} makes of them the scores jump: the net "
                "switches or rounds somewhere, gradients do not see what lies behind, and attacks may miss it"
            )
    return None


def _underflowing(look: Look) -> str | None:
    gaps = -log_odds(look.ask(look.few.x), look.few.y)
    if _share(gaps > UNDERFLOW) <= 0.5:
        return None
    return (
        f"scores lie so far apart (median gap {float(gaps.median()):.3g}) that the cross-entropy of most inputs has no "
        "gradient in single precision, and attacks on it fail; ours climb log-odds, which have one, those of other "
        "libraries may not; divide the scores by a constant"
    )


def _saturated(look: Look) -> str | None:
    scores = look.ask(look.right.x)
    if len(scores) < PILED or looks_like_probabilities(scores):
        return None
    top = scores.amax(1)
    if float(top.max() - top.median()) > PILE * float(width(scores).max()):
        return None
    return (
        f"the scores saturate: the highest one of most inputs is the same to within {100 * PILE:g} % ("
        f"{float(top.median()):.4g}), so gradients vanish where the net is sure; return what goes into that last step"
    )


def _useless(look: Look) -> str | None:
    for slope in look.once(slopes):
        faint, blind = _share(slope.faint), _share(slope.blind)
        if faint > SOME_ROWS:
            return (
                f"the gradients of {100 * faint:.0f} % of {slope.where} are so small that no step along them could "
                "change an answer: rounding decides what attacks do"
            )
        if blind > SOME_ROWS:
            return (
                f"the gradients of {100 * blind:.0f} % of {slope.where} do not lead uphill: a short step along them "
                "gains nothing, or less than a random one, so attacks that follow them are led astray"
            )
    return None


def _share(rows: Tensor) -> float:
    return float(rows.to(torch.float32).mean())
