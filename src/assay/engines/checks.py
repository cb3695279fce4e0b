"""Can this number be trusted? Named checks, shown beside the number they spoil."""

import torch

from assay.core.cases import Cases
from assay.engines.cascade import Block
from assay.engines.evaluation import Evaluation
from assay.subjects.sources.module import looks_like_probabilities
from assay.subjects.target import Target


def warnings_of(target: Target, cases: Cases, result: Evaluation, blocks: list[Block]) -> list[dict[str, str]]:
    """Every check that fired, as name and message."""
    sample = cases.x[:64].to(target.device)
    with torch.no_grad():
        logits = target(sample)
    fired = []
    if looks_like_probabilities(logits):
        fired.append(
            (
                "softmax_output",
                "the outputs are probabilities, not logits: gradients vanish where the net is sure and attacks come "
                "out weaker than they are; return the scores before the softmax",
            )
        )
    if not bool(logits.isfinite().all()):
        fired.append(("nonfinite", "the net answers NaN or infinity on some clean inputs"))
    if result.clean.accuracy < max(0.5, 1.2 / len(target.spec.classes)):
        fired.append(
            (
                "bad_clean_accuracy",
                f"clean accuracy is {result.clean.accuracy:.3f}: the labels, the class order or the normalisation "
                "may not fit this net, so its robustness says little",
            )
        )
    return [{"name": name, "message": message} for name, message in fired]
