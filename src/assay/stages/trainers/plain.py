"""Plain training: the cases as they are."""

from torch import nn

from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.stages.trainers.kept_back import judge
from assay.stages.trainers.loop import fit
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.watch import Watch
from assay.subjects.bench import Splits


@register("trainer", needs=("train",))
def plain(
    module: nn.Module,
    data: Splits,
    extra: Cases | None,
    *,
    rng: Stream,
    watch: Watch,
    epochs: int = 10,
    batch: int = 64,
    lr: float = 1e-3,
    optimiser: str = "adam",
    schedule: str = "cosine",
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    smoothing: float = 0.0,
    augment: str = "",
    ema: float = 0.0,
    best: str = "accuracy",
    time: float = 0.0,
) -> nn.Module:
    """Cross-entropy on the training cases and the extra ones; best epoch by validation accuracy.

    In hardening the validation cases hold failures too. ``best="floor"`` takes the epoch that is right on most of them
    and loses at most a point of the clean accuracy before training.
    """
    plan = Plan(epochs, batch, lr, optimiser, schedule, momentum, weight_decay, smoothing, augment, ema, time=time)
    val, judged = data.part("val").cases, judge(best, module)
    return fit(module, joined(data, extra), val, plan, rng=rng, watch=watch, judge=judged)


def joined(data: Splits, extra: Cases | None) -> Cases:
    """The training cases with the extra ones behind them."""
    train = data.part("train").cases
    return train if extra is None else Cases.cat([train, extra])
