"""Robust overfitting: a net that withstands less, the longer it trains."""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

OVERFITTED = 2.0  # standard errors by which the last epoch's score is below the best one's before it is told

told = logging.getLogger("assay")


class Noting(Protocol):
    """Who hears what there is to say of a training."""

    def note(self, facts: Mapping[str, Any]) -> None: ...


def tell_of_overfitting(log: Sequence[Mapping[str, float]], n: int, watch: Noting) -> None:
    """Tell where the last epoch's score, a share of ``n`` cases, is below the best one by more than chance."""
    scores = [row["score"] for row in log]
    best = max(range(len(scores)), key=scores.__getitem__)
    fall = scores[best] - scores[-1]
    if fall > OVERFITTED * math.sqrt(0.25 / n):
        told.warning(
            "overfitting: the score fell from %.3f in epoch %d to %.3f in the last one; the weights are those of epoch "
            "%d, and fewer epochs, --ema or awp would do as well",
            *(scores[best], best + 1, scores[-1], best + 1),
        )
        watch.note({"overfitting": f"{scores[best]:.3f} in epoch {best + 1}, {scores[-1]:.3f} in the last"})
