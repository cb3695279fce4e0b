"""Seeds that fool the vulnerable model: attacked images."""

import torch
from torch import Tensor

from assay.core.cases import Cases, inside
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import Bound, register
from assay.stages.attacks.untargeted import made_by, untargeted
from assay.stages.twins import Together, labelled, vulnerable
from assay.subjects.bench import Bench
from assay.subjects.target import Target

# How many cases are attacked before their successes are counted. Not the size of a chunk: which batch a case is in may
# change its last bits, and the seeds of a run are not to depend on how many lanes it has.
BLOCK = 512
MODELS = ("vulnerable", "both")


@register("seeder", paper="TwinFuzz 2026", needs=("label",))
def attacked(
    bench: Bench,
    cases: Cases,
    *,
    rng: Stream,
    eps: float,
    norm: str = "linf",
    attack: str = "bim(steps=20, step=0.2, early_stop=false)",
    model: str = "vulnerable",
    count: int | None = 1000,
) -> Cases:
    """Attacks that fool the vulnerable model (the target where there is no other), ``count`` of them or all.

    It attacks cases that this model gets right, in random order, and gives the successes in the order it came to them,
    with the clean parent as column ``seed_x``. Unlabelled ones take the class of their parent as label. With
    ``model=both`` the attack climbs the loss of the two models together, so that more of it carries over.
    """
    # Code: softmax outputs go into a loss that takes a softmax itself, and the label is V's answer, right or wrong.
    # Here: the loss of logits, and cases that V gets right, because of the others no attack is a success.
    if count is not None and count < 1:
        raise UsageError(f"attacked: count is a number of seeds from 1 up, or null for all; got {count}")
    if model not in MODELS:
        raise UsageError(f"attacked: model is one of {', '.join(MODELS)}; got {model!r}")
    victim = vulnerable(bench)
    climbed = Together((victim, bench.target)) if model == "both" else victim
    search = untargeted(attack, climbed, eps=eps, norm=norm, who="a seeder")
    order = torch.randperm(len(cases), generator=rng.at("order").generator()).to(cases.x.device)
    found, lacking = [cases[:0].note(seed_x=cases.parent[:0])], count
    with victim.ready(), climbed.ready():
        for start in range(0, len(cases), BLOCK):
            block = labelled(bench, cases[order[start : start + BLOCK]])
            found.append(_successes(bench, victim, climbed, search, block, rng.at("attack"))[:lacking])
            lacking = None if lacking is None else lacking - len(found[-1])
            if lacking == 0:
                break
    return Cases.cat(found)


def _successes(bench: Bench, victim: Target, climbed: Target, search: Bound, clean: Cases, rng: Stream) -> Cases:
    """Of the cases that the victim gets right, what the attack makes of those on which it succeeds."""

    def right(x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            return (victim(x.to(victim.device)).argmax(1) == y.to(victim.device)).to(y.device)

    def tried(x: Tensor, y: Tensor, origin: Tensor) -> tuple[Tensor, Tensor]:
        x, y, origin = (column.to(victim.device) for column in (x, y, origin))
        made = made_by(search, climbed, x, y, rng.rows(origin))
        with torch.no_grad():
            fooled = (victim(made).argmax(1) != y) & inside(made, victim.spec.bounds)
        return made.to(clean.x.device), fooled.to(clean.x.device)

    clean = clean[bench.chunks.map(right, clean.x, clean.y)]
    made, fooled = bench.chunks.map_all(tried, clean.x, clean.y, clean.origin)
    return clean.note(seed_x=clean.parent).with_x(made)[fooled]
