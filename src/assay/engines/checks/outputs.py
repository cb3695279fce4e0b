"""Checks of the answers themselves."""

from assay.core.registry import register
from assay.engines.checks.look import Look, spread
from assay.subjects.sources.module import looks_like_probabilities

RANDOMISED = "the net gives the same input different answers"


@register("check")
def softmax_output(look: Look) -> str | None:
    """Answers are probabilities, not logits."""
    if "logit" not in look.target.gives or not looks_like_probabilities(look.scores):
        return None
    return (
        "the outputs are probabilities, not logits: gradients vanish where the net is sure and attacks come out "
        "weaker than they are; return the scores before the softmax"
    )


@register("check")
def nonfinite(look: Look) -> str | None:
    """Answers are not numbers."""
    if not bool(look.scores.isfinite().all()):
        return "the net answers NaN or infinity on some clean inputs"
    if not bool(look.ask(look.noisy(spread(look.sample, 8))).isfinite().all()):
        return "the net answers NaN or infinity on some inputs with noise, and each of them counts as broken"
    return None


@register("check")
def randomised(look: Look) -> str | None:
    """The same input gets different answers."""
    if not look.restless:
        return None
    return (
        f"{RANDOMISED}: attacks chase noise and it looks more robust than it is; "
        "average over its draws (suite autoattack-rand, or eot=20) and compare with the net without its noise"
    )
