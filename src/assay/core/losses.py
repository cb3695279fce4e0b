"""Losses per case: each takes logits (N, K) and labels (N,) and returns (N,), to be maximised by an attack."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from assay.core.errors import UsageError

Loss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of each case, exact in its gradient also where the net is very sure, (N,).

    ``softplus(logsumexp of the other logits - own logit)``. The fused form computes p - 1 in float32,
    which is 0 for confident cases: their gradients lose the own-class term, and attacks weaken unseen.
    """
    own = logits.gather(1, y[:, None])
    others = logits.scatter(1, y[:, None], -torch.inf)
    return F.softplus(others.logsumexp(1) - own.squeeze(1))


def margin(logits: Tensor, y: Tensor) -> Tensor:
    """Best other logit minus own logit, (N,): positive where the case is misclassified, 0 on a tie."""
    own = logits.gather(1, y[:, None]).squeeze(1)
    return logits.scatter(1, y[:, None], -torch.inf).amax(1) - own


LOSSES: dict[str, Loss] = {"ce": cross_entropy, "margin": margin}


def named(loss: str) -> Loss:
    """The loss of that name."""
    if loss not in LOSSES:
        raise UsageError(f"loss must be one of {', '.join(LOSSES)}, got {loss!r}")
    return LOSSES[loss]


def smoothed(logits: Tensor, y: Tensor, smoothing: float) -> Tensor:
    """Training cross-entropy with label smoothing, (N,)."""
    return F.cross_entropy(logits, y, label_smoothing=smoothing, reduction="none")
