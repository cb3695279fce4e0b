"""The neurons that a strategy pushes."""

from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.registry import register
from assay.stages.strategies import PUSHED
from assay.subjects.bench import Bench


@register("score", paper="DeepXplore 2017", needs=("activation",))
def neurons(bench: Bench, cases: Cases) -> Tensor:
    """The sum of the neurons that the recipe's strategy chose, with a minus sign where they are pushed down.

    Formula: Σⱼ signⱼ · nⱼ(x) over the neurons j that the strategy chose.
    """
    if any(name not in cases.info for name in PUSHED):
        raise UsageError("neurons are chosen by a strategy, and this recipe has none; give one: --set strategy=random")
    values = bench.seen(cases).neurons
    pushed, signs = (cases.info[name].to(values.device) for name in PUSHED)
    return (signs.to(values.dtype) * values.gather(1, pushed)).sum(1)
