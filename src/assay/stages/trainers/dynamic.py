"""Dynamic adversarial training: inner searches only as good as the net needs them."""

from torch import Tensor, nn

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.stages.trainers.growth import Growth
from assay.stages.trainers.loop import Moment
from assay.stages.trainers.plan import Plan
from assay.stages.trainers.searches import Searches
from assay.stages.trainers.watch import Watch
from assay.subjects.bench import Splits


@register("trainer", paper="Wang et al. 2019", needs=("train", "grad"))
def dynamic(
    module: nn.Module,
    data: Splits,
    extra: Cases | None,
    *,
    rng: Stream,
    watch: Watch,
    eps: float,
    norm: str = "linf",
    attack: str = "pgd(steps=10, step=0.25, early_stop=false)",
    loose: float = 0.5,
    until: float = 0.8,
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
    warm: float = 0.0,
    distil: float = 0.0,
    temperature: float = 1.0,
) -> nn.Module:
    """Adversarial training whose searches stop, case by case, at a first-order loss that falls.

    The attack must know ``converged``, as pgd does: a case stops where its FOL is no more than ``loose`` at first, less
    with every epoch, and 0 from the share ``until`` of the training on, where searches go all their steps; with
    ``until`` above 1 it never comes to that. ``warm`` is the share of the training in which the ball grows to full
    size. The best epoch is that of the highest accuracy under the whole attack and APGD.

    Formula: stop at eps·‖g‖₁ − ⟨x' − x, g⟩ ≤ loose · max(0, 1 − t / until), t the share of the training that is done.
    """
    plan = Plan(
        epochs, batch, lr, optimiser, schedule, momentum, weight_decay, smoothing, augment, ema, awp, time,
        distil=distil, temperature=temperature,
    )  # fmt: skip
    if loose < 0 or until <= 0:
        raise UsageError(f"loose is not negative, and until is a share of the training; got {loose} and {until}")
    growth = Growth(warm)
    searches = Searches(attack, module, data.part("train").spec, eps=eps, norm=norm, batch=batch)

    def attacked(net: nn.Module, x: Tensor, y: Tensor, ids: Tensor, at: Moment) -> tuple[Tensor]:
        now = searches.climbing(converged=loose * max(0.0, 1.0 - at.progress / until)).at(at, growth)
        return (now.made(net, x, y, ids, at.rng),)

    return searches.learn(module, data, extra, plan, attacked, rng=rng, watch=watch, growth=growth)
