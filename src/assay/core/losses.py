"""Losses per case: each takes logits (N, K) and labels (N,) and returns (N,), to be maximised by an attack."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from assay.core.errors import UsageError

Loss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of each case, its gradient right also where the net is sure, (N,).

    ``softplus(logsumexp of the other logits - own logit)``. The fused form computes p - 1 in float32,
    which is 0 for confident cases: their gradients lose the own-class term, and attacks weaken unseen.
    """
    return F.softplus(log_odds(logits, y))


def log_odds(logits: Tensor, y: Tensor) -> Tensor:
    """``logsumexp of the other logits - own logit``, (N,): cross-entropy before its softplus.

    Grows with cross-entropy and has the same gradient up to a positive factor for each case, which normalised steps do
    not see; the factor underflows to 0 where the net is very sure, and this does not.
    """
    own = logits.gather(1, y[:, None]).squeeze(1)
    return logits.scatter(1, y[:, None], -torch.inf).logsumexp(1) - own


def margin(logits: Tensor, y: Tensor) -> Tensor:
    """Best other logit minus own logit, (N,): positive where the case is misclassified, 0 on a tie."""
    own = logits.gather(1, y[:, None]).squeeze(1)
    return logits.scatter(1, y[:, None], -torch.inf).amax(1) - own


# What attacks climb, by the name of the loss they mean.
LOSSES: dict[str, Loss] = {"ce": log_odds, "margin": margin}


def named(loss: str) -> Loss:
    """The loss of that name."""
    if loss not in LOSSES:
        raise UsageError(f"loss must be one of {', '.join(LOSSES)}, got {loss!r}")
    return LOSSES[loss]


def smoothed(logits: Tensor, y: Tensor, smoothing: float) -> Tensor:
    """Training cross-entropy with label smoothing, (N,)."""
    return F.cross_entropy(logits, y, label_smoothing=smoothing, reduction="none")
