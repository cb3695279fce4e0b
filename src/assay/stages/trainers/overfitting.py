"""Robust overfitting: a score on validation cases that fell again before the training was over."""

import logging
import math
from collections.abc import Mapping, Sequence

OVERFITTED = 2.0  # standard errors by which the last epoch's score is below the best one's before it is told

log = logging.getLogger("assay")


def overfitting(epochs: Sequence[Mapping[str, float]], n: int) -> str:
    """What is to tell where the last epoch's score, a share of ``n`` cases, is below the best one by more than chance;
    "" where it is not.
    """
    scores = [row["score"] for row in epochs]
    best = max(range(len(scores)), key=scores.__getitem__)
    if scores[best] - scores[-1] <= OVERFITTED * math.sqrt(0.25 / n):
        return ""
    log.warning(
        "overfitting: the score fell from %.3f in epoch %d to %.3f in the last one; the weights are those of epoch "
        "%d, and fewer epochs, --ema or awp would do as well",
        *(scores[best], best + 1, scores[-1], best + 1),
    )
    return f"{scores[best]:.3f} in epoch {best + 1}, {scores[-1]:.3f} in the last"
