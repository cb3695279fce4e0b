"""Adversarial training: learn from what attacks make of each batch."""

import torch
from torch import Tensor, nn

from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.stages.trainers.growth import Growth
from assay.stages.trainers.loop import Moment
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.searches import Searches
from assay.stages.trainers.watch import Watch
from assay.subjects.bench import Splits


@register("trainer", paper="Madry et al. 2018", needs=("train",))
def adversarial(
    module: nn.Module,
    data: Splits,
    extra: Cases | None,
    *,
    rng: Stream,
    watch: Watch,
    eps: float,
    norm: str = "linf",
    attack: str = "pgd(steps=7, step=0.25, early_stop=false)",
    share: float = 1.0,
    warm: float = 0.0,
    guard: float = 0.0,
    epochs: int = 20,
    batch: int = 64,
    lr: float = 1e-3,
    optimiser: str = "adam",
    schedule: str = "cosine",
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    smoothing: float = 0.0,
    augment: str = "",
    ema: float = 0.0,
    awp: float = 0.0,
    time: float = 0.0,
    distil: float = 0.0,
    temperature: float = 1.0,
) -> nn.Module:
    """Cross-entropy on attacked batches (a ``share`` of each batch); best epoch under the attacks and APGD.

    ``attack`` may be a comma list, as ``pgd(steps=10), pgd(norm=l2, eps=0.5, steps=10)``: each makes an equal part of
    a batch. ``warm`` is the share of the training in which their balls grow to full size: large ones are not learned
    from the start. With a ``guard`` above 0, searches double their steps, to forty at most, where the net withstands
    them on more validation cases than it withstands APGD: by a quarter of these, or by more than that share of all and
    two epochs on end were no better. ``awp`` above 0 perturbs the weights, too (Wu et al. 2020). With ``distil`` it
    learns, in place of the label, (1 − distil) · label + distil · softmax(average(x) / temperature), of its running
    average (``ema``).
    """
    plan = Plan(
        epochs, batch, lr, optimiser, schedule, momentum, weight_decay, smoothing, augment, ema, awp, time,
        distil=distil, temperature=temperature,
    )  # fmt: skip
    growth = Growth(warm, guard)
    searches = Searches(attack, module, data.part("train").spec, eps=eps, norm=norm, batch=batch)

    def attacked(net: nn.Module, x: Tensor, y: Tensor, ids: Tensor, at: Moment) -> tuple[Tensor]:
        count, now = round(len(x) * share), searches.at(at, growth)
        return (torch.cat([now.made(net, x[:count], y[:count], ids[:count], at.rng), x[count:]]),)

    return searches.learn(module, data, extra, plan, attacked, rng=rng, watch=watch, growth=growth)
