"""Probability of the classes that come next after the true one."""

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.registry import register
from assay.subjects.bench import Bench
from assay.subjects.target import require


@register("score", paper="RobOT 2021", needs=("prob",))
def rivals(bench: Bench, cases: Cases, *, k: int = 5, logits: bool = False) -> Tensor:
    """The sum of the probabilities of the k-1 classes that were likeliest at the seed, beside the label.

    They are ranked by the column ``seed_logits``, where there is none at the case itself. With ``logits`` it is the sum
    of their scores before the softmax (DLFuzz).

    Formula: Σ_{i in R} pᵢ(x), R the k − 1 likeliest classes of the seed beside the label; with logits Σ zᵢ(x).
    """
    if k < 2:
        raise UsageError(f"rivals: k counts the label and its rivals and must be at least 2, got {k}")
    if logits:
        require(bench.target, ("logit",), "score 'rivals(logits=true)'")
    now = bench.logits(cases)
    # Paper: the k likeliest labels, ranked again at every step. Here: the case's label and the k-1 likeliest others of
    # the seed, because the objective would turn round as soon as the label flips.
    at_seed = cases.info.get("seed_logits", now).detach().to(now.device)
    others = at_seed.scatter(1, cases.y.to(now.device)[:, None], -torch.inf)
    next_best = others.topk(min(k, now.shape[1]) - 1, 1).indices
    return (now if logits else now.softmax(1)).gather(1, next_best).sum(1)
