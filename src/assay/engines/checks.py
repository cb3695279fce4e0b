"""Can this number be trusted? Named checks, shown beside the number they spoil."""

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.losses import log_odds
from assay.engines.evaluation import Evaluation
from assay.subjects.sources.module import looks_like_probabilities
from assay.subjects.target import Target

SAMPLE = 64
FEW_GRADIENTS = 0.1  # share of inputs without a usable gradient from which on we warn


def warnings_of(
    target: Target,
    cases: Cases,
    result: Evaluation,
    attacks: object = None,
    rng: object = None,
    suppressed: object = (),
) -> list[dict[str, str]]:
    """Every check that fired, as name and message."""
    sample = cases[:SAMPLE].to(target.device)
    with torch.no_grad():
        logits, again = target(sample.x), target(sample.x)
    fired = {}
    if looks_like_probabilities(logits):
        fired["softmax_output"] = (
            "the outputs are probabilities, not logits: gradients vanish where the net is sure and attacks come out "
            "weaker than they are; return the scores before the softmax"
        )
    if not bool(logits.isfinite().all()):
        fired["nonfinite"] = "the net answers NaN or infinity on some clean inputs"
    if not torch.equal(logits.nan_to_num(), again.nan_to_num()):
        fired["randomised"] = (
            "the net gives the same input different answers: attacks chase noise and it looks more robust than it is"
        )
    lost = _without_gradient(target, sample)
    if lost > FEW_GRADIENTS:
        fired["zero_gradient"] = (
            f"{100 * lost:.0f} % of inputs have a zero or undefined gradient: gradient attacks cannot work on them"
        )
    classes = len(target.spec.classes)
    if result.clean.accuracy < (0.6 if classes == 2 else min(0.5, 3 / classes)):
        fired["bad_clean_accuracy"] = (
            f"clean accuracy is {result.clean.accuracy:.3f}, near chance: the labels, the class order or the "
            "normalisation may not fit this net, so its robustness says little"
        )
    return [{"name": name, "message": message} for name, message in fired.items()]


def _without_gradient(target: Target, sample: Cases) -> float:
    """The share of inputs on which a gradient attack has nothing to go by."""
    if "grad" not in target.gives:
        return 0.0
    with torch.enable_grad():
        x = sample.x.detach().requires_grad_()
        out = log_odds(target(x), sample.y)
        grad: Tensor | None = torch.autograd.grad(out.sum(), x, allow_unused=True)[0] if out.requires_grad else None
    if grad is None:
        return 1.0
    flat = grad.flatten(1)
    usable = flat.isfinite().all(1) & (flat != 0).any(1)
    return 1 - float(usable.float().mean())
