"""Adversarial training: learn from what an attack makes of each batch."""

import torch
from torch import Tensor, nn

from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.randomness import Stream
from assay.core.registry import Bound, register
from assay.stages.attacks.untargeted import untargeted
from assay.stages.trainers.inner import Inner
from assay.stages.trainers.loop import Watch, accuracy, fit
from assay.stages.trainers.plain import joined
from assay.stages.trainers.plan import Plan
from assay.subjects.bench import Splits
from assay.subjects.sources.module import ModuleTarget

VALIDATED = 1000  # validation cases attacked after each epoch


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
) -> nn.Module:
    """Cross-entropy on attacked batches (a ``share`` of each batch); best epoch by accuracy under the attack."""
    plan = Plan(epochs, batch, lr, optimiser, schedule, momentum, weight_decay, smoothing, augment, ema)
    spec = data.part("train").spec
    search = untargeted(attack, ModuleTarget(module, spec), eps=eps, norm=norm, who="a trainer")

    inner = Inner(spec)
    chunks = Chunks(max(batch, VALIDATED), alone=True)  # attacks take more memory than answers

    def attacked(net: nn.Module, x: Tensor, y: Tensor, ids: Tensor, here: Stream) -> Tensor:
        count, target = round(len(x) * share), inner.of(net, x, here)

        def work(x: Tensor, y: Tensor, ids: Tensor) -> Tensor:
            some: Tensor = search(target, x, y, rng=here.rows(ids))
            return some

        made = chunks.map(work, x[:count], y[:count], ids[:count])
        return torch.cat([made, x[count:]]).detach()

    def judged(net: nn.Module, val: Cases) -> dict[str, float]:
        return {
            **accuracy(net, val),
            "score": _robust(inner.of(net, val.x, rng), ModuleTarget(net, spec), val[:VALIDATED], search, rng, chunks),
        }

    return fit(
        module,
        joined(data, extra),
        data.part("val").cases,
        plan,
        rng=rng,
        watch=watch,
        batch=attacked,
        judge=judged,
    )


def _robust(target: ModuleTarget, judge: ModuleTarget, val: Cases, search: Bound, rng: Stream, chunks: Chunks) -> float:
    """The share of the cases that the judge still gets right where the target was searched."""

    def right(x: Tensor, y: Tensor, origin: Tensor) -> Tensor:
        made = search(target, x, y, rng=rng.at("validation").rows(origin))
        with torch.no_grad():
            return (judge(made).argmax(1) == y).float()

    return float(chunks.map(right, val.x, val.y, val.origin).mean())
