"""Bottom-k neuron coverage: neurons that are among the least active of their layer."""

from assay.core.registry import register
from assay.stages.coverage import Coverage, Criterion
from assay.stages.coverage.bitmap import over_neurons
from assay.stages.coverage.profile import Profile
from assay.stages.coverage.rule import Rule
from assay.stages.coverage.tops import Tops, check_k
from assay.subjects.observer import Observer


@register("criterion", paper="DeepHunter 2019", needs=("activation",))
def bknc(*, k: int = 2) -> Criterion:
    """Neurons among the k smallest of their layer; of equal values the first.

    Formula: |{n : n among the k smallest of its layer for some test}| / |neurons|.
    """
    check_k("bknc", k)

    def begin(observer: Observer, profile: Profile | None) -> Coverage:
        tops = Tops.of(observer, k, largest=False)
        return over_neurons(observer, tops, width=tops.width)

    return Rule(begin)
