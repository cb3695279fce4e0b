"""MART: adversarial training that minds what the net gets wrong."""

from torch import Tensor, nn

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.losses import boosted, divergence
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.stages.trainers.growth import Growth
from assay.stages.trainers.loop import Moment, Task
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.searches import Searches
from assay.stages.trainers.watch import Watch
from assay.subjects.bench import Splits


@register("trainer", paper="Wang et al. 2020", needs=("train", "grad"))
def mart(
    module: nn.Module,
    data: Splits,
    extra: Cases | None,
    *,
    rng: Stream,
    watch: Watch,
    eps: float,
    norm: str = "linf",
    attack: str = "pgd(steps=10, step=0.25, early_stop=false)",
    beta: float = 5.0,
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
    """A boosted cross-entropy of attacked inputs, and answers that stay, most where the net is unsure.

    The best epoch is that of the highest accuracy under the attack and APGD. ``warm`` is the share of the training in
    which its ball grows to full size. ``guard`` is as in ``adversarial``.

    Formula: L = BCE(f(x'), y) + beta · KL(f(x) ‖ f(x')) · (1 − p_y(x)), BCE the cross-entropy and −log(1 − the largest
    probability of a wrong class).
    """
    plan = Plan(
        epochs, batch, lr, optimiser, schedule, momentum, weight_decay, augment=augment, ema=ema, awp=awp, time=time,
        distil=distil, temperature=temperature,
    )  # fmt: skip
    if beta < 0:
        raise UsageError(f"beta weighs what is asked besides the labels and is not negative, got {beta}")
    growth = Growth(warm, guard)
    searches = Searches(attack, module, data.part("train").spec, eps=eps, norm=norm, batch=batch)

    def attacked(net: nn.Module, x: Tensor, y: Tensor, ids: Tensor, at: Moment) -> tuple[Tensor, Tensor, Tensor]:
        return searches.at(at, growth).made(net, x, y, ids, at.rng), x, y

    def loss(net: nn.Module, made: Tensor, x: Tensor, label: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        moved: Tensor = net(made).float()
        clean: Tensor = net(x).float().log_softmax(1)
        unsure = 1.0 - clean.gather(1, label[:, None]).squeeze(1).exp()
        return (boosted(moved, label, y if distil else None) + beta * divergence(moved, clean) * unsure).mean()

    task = Task(loss, pure=True, passes=2)
    return searches.learn(module, data, extra, plan, attacked, rng=rng, watch=watch, task=task, growth=growth)
