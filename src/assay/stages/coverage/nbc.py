"""Neuron boundary coverage: values on either side outside the training range."""

from assay.core.registry import register
from assay.stages.coverage import Coverage, Criterion
from assay.stages.coverage.corners import check, corners
from assay.stages.coverage.profile import Profile
from assay.stages.coverage.rule import Rule
from assay.subjects.observer import Observer


@register("criterion", paper="DeepGauge 2018", needs=("activation",))
def nbc(*, std: float = 0.0, buckets: int = 0) -> Criterion:
    """Corners below and above each neuron's training range widened by ``std`` deviations.

    ``buckets`` (10 in DeepHunter) parts each corner into that many of a thousandth of the range and one beyond them.

    Formula: |{n : value < lowₙ − std·σₙ}| + |{n : value > highₙ + std·σₙ}| over 2 · |neurons|.
    """
    check("nbc", std, buckets)

    def begin(observer: Observer, profile: Profile | None) -> Coverage:
        return corners(observer, profile, "nbc", std, buckets, both=True)

    return Rule(begin, profiled=True)
