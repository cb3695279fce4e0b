"""Strong neuron activation coverage: values above the training range."""

from assay.core.registry import register
from assay.stages.coverage import Coverage, Criterion
from assay.stages.coverage.corners import check, corners
from assay.stages.coverage.profile import Profile
from assay.stages.coverage.rule import Rule
from assay.subjects.observer import Observer


@register("criterion", paper="DeepGauge 2018", needs=("activation",))
def snac(*, std: float = 0.0, buckets: int = 0) -> Criterion:
    """The corner above each neuron's training range widened by ``std`` deviations; ``buckets`` as of nbc.

    Formula: |{n : value > highₙ + std·σₙ for some test}| / |neurons|.
    """
    check("snac", std, buckets)

    def begin(observer: Observer, profile: Profile | None) -> Coverage:
        return corners(observer, profile, "snac", std, buckets, both=False)

    return Rule(begin, profiled=True)
