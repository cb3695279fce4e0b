"""TRADES: right on the clean input, and the same around it."""

import torch
from torch import Tensor, nn

from assay.core.aims import alike
from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.losses import divergence, smoothed
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.stages.trainers.growth import Growth
from assay.stages.trainers.loop import Moment, Task
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.searches import Searches
from assay.stages.trainers.watch import Watch
from assay.subjects.bench import Splits


@register("trainer", paper="Zhang et al. 2019", needs=("train", "grad"))
def trades(
    module: nn.Module,
    data: Splits,
    extra: Cases | None,
    *,
    rng: Stream,
    watch: Watch,
    eps: float,
    norm: str = "linf",
    attack: str = "pgd(steps=10, step=0.25, early_stop=false)",
    beta: float = 6.0,
    epochs: int = 20,
    batch: int = 64,
    lr: float = 1e-3,
    optimiser: str = "adam",
    schedule: str = "cosine",
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    augment: str = "",
    ema: float = 0.0,
    awp: float = 0.0,
    time: float = 0.0,
    warm: float = 0.0,
    guard: float = 0.0,
    distil: float = 0.0,
    temperature: float = 1.0,
) -> nn.Module:
    """Cross-entropy of clean inputs and ``beta`` times how far answers move in the ball; best epoch under the attack.

    The attack climbs that divergence, not the loss of the label; one of several that climbs nothing, such as corrupt,
    does what it does. Epochs are judged by the attacks as they are written, and APGD. ``warm`` is the share of the
    training in which their balls grow to full size. ``guard`` is as in ``adversarial``.

    Formula: L = CE(f(x), y) + beta · KL(f(x) ‖ f(x')), x' = argmax KL(f(x) ‖ f(x')) in the ball.
    """
    plan = Plan(
        epochs, batch, lr, optimiser, schedule, momentum, weight_decay, augment=augment, ema=ema, awp=awp, time=time,
        distil=distil, temperature=temperature,
    )  # fmt: skip
    if beta < 0:
        raise UsageError(f"beta weighs what is asked besides the labels and is not negative, got {beta}")
    growth = Growth(warm, guard)
    searches = Searches(attack, module, data.part("train").spec, eps=eps, norm=norm, batch=batch)
    apart = searches.climbing(loss=divergence, criterion=alike)

    def attacked(net: nn.Module, x: Tensor, y: Tensor, ids: Tensor, at: Moment) -> tuple[Tensor, Tensor]:
        target = apart.target(net, x, at.rng)
        with torch.no_grad(), target.ready():
            log_p = apart.chunks.map(lambda x: target(x).log_softmax(1), x)
        return apart.at(at, growth).made(net, x, y, ids, at.rng, log_p), x

    def loss(net: nn.Module, made: Tensor, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        clean, moved = net(x).float(), net(made).float()
        return smoothed(clean, y, 0.0).mean() + beta * divergence(moved, clean.log_softmax(1)).mean()

    task = Task(loss, pure=True, passes=2)
    return searches.learn(module, data, extra, plan, attacked, rng=rng, watch=watch, task=task, growth=growth)
