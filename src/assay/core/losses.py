"""Losses per case: each takes outputs (N, K) and references (N, …) and returns (N,), to be maximised by an attack."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

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


def dlr(logits: Tensor, y: Tensor) -> Tensor:
    """Difference of logits ratio (Croce and Hein 2020): the margin over the gap from first to third, (N,).

    Unmoved by shifting and scaling the logits. With two classes there is no third and it is the margin.
    """
    if logits.shape[1] < 3:
        return margin(logits, y)
    first, _, third = logits.topk(3, 1).values.unbind(1)
    return margin(logits, y) / (first - third + 1e-12)


def dlr_towards(logits: Tensor, y: Tensor, goal: Tensor) -> Tensor:
    """Targeted difference of logits ratio: logit of ``goal`` minus own, over first minus mean of third and fourth."""
    own, aimed = (logits.gather(1, label[:, None]).squeeze(1) for label in (y, goal))
    if logits.shape[1] < 3:
        return aimed - own
    best = logits.topk(min(4, logits.shape[1]), 1).values
    return (aimed - own) / (best[:, 0] - best[:, 2:].mean(1) + 1e-12)


def multilabel(logits: Tensor, y: Tensor) -> Tensor:
    """Sum of binary cross-entropies of several labels, references (N, K) of 0 and 1, (N,)."""
    return F.binary_cross_entropy_with_logits(logits, y.to(logits.dtype), reduction="none").flatten(1).sum(1)


def squared(outputs: Tensor, y: Tensor) -> Tensor:
    """Squared distance of a regression's outputs from its references, (N,)."""
    return (outputs - y.to(outputs.dtype).view_as(outputs)).flatten(1).square().sum(1)


def divergence(logits: Tensor, log_p: Tensor) -> Tensor:
    """Kullback-Leibler divergence to the softmax of the logits from probabilities whose logarithms are given, (N,)."""
    # By logarithms: the slope of p · log p at p = 0 would be infinite, and a sure net's p is 0.
    return F.kl_div(logits.log_softmax(1), log_p, reduction="none", log_target=True).sum(1)


def boosted(logits: Tensor, y: Tensor, aims: Tensor | None = None) -> Tensor:
    """Cross-entropy and, besides, the logarithm of what the likeliest wrong class leaves (MART's BCE), (N,).

    The cross-entropy is that with the probabilities ``aims`` (N, K), where there are such.
    """
    log = logits.log_softmax(1)
    own = y[:, None]
    rival = log.exp().scatter(1, own, 0.0).amax(1)
    first = log.gather(1, own).squeeze(1) if aims is None else (aims * log).sum(1)
    return -first - torch.log(1.0001 - rival)


# What attacks climb, by the name of the loss they mean.
LOSSES: dict[str, Loss] = {
    "ce": log_odds,
    "margin": margin,
    "dlr": dlr,
    "multilabel": multilabel,
    "squared": squared,
}


def entropy(logits: Tensor) -> Tensor:
    """The entropy of the softmax of each row, in nats, (N,)."""
    # Through the logarithm of p, where p·log p has slope 0 at p = 0; through p itself it has slope -inf. Of a
    # logit of -inf the logarithm is -inf too, and 0 times that is NaN: it is taken as the lowest number there is.
    log = logits.log_softmax(1)
    return -(log.exp() * log.clamp_min(torch.finfo(log.dtype).min)).sum(1)


def smoothed(logits: Tensor, y: Tensor, smoothing: float) -> Tensor:
    """Training cross-entropy with label smoothing, (N,); references are classes (N,) or probabilities (N, K)."""
    if y.is_floating_point():
        logits = logits.to(y.dtype)
    return F.cross_entropy(logits, y, label_smoothing=smoothing, reduction="none")
