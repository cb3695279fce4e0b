"""k-multisection neuron coverage: sections of each neuron's range over the training data."""

import torch
from torch import Tensor

from assay.core.errors import UsageError
from assay.core.registry import register
from assay.stages.coverage import Coverage, Criterion
from assay.stages.coverage.bitmap import NONE, over_neurons
from assay.stages.coverage.profile import Profile, needed
from assay.stages.coverage.rule import Rule
from assay.subjects.observer import Observer, Seen


@register("criterion", paper="DeepGauge 2018", needs=("activation",))
def kmnc(*, k: int = 1000) -> Criterion:
    """Sections, of k equal ones between the least and greatest training value of each neuron.

    The last section is closed; a value outside the range reaches none. Neurons of one value have no sections.

    Formula: |{(n, s) : some test puts n into section s of [lowₙ, highₙ]}| / (k · |neurons that vary|).
    """
    if k < 1:
        raise UsageError(f"kmnc: k must be 1 or more sections, got {k}")

    def begin(observer: Observer, profile: Profile | None) -> Coverage:
        known = needed(profile, observer, "kmnc")
        span = known.high - known.low
        live = (span > 0) & span.isfinite()
        low, high = known.low, torch.where(live, known.high, -torch.inf)  # nothing lies within an empty range
        first = torch.arange(observer.neurons, device=low.device) * k

        def reach(seen: Seen) -> Tensor:
            values = seen.neurons
            section = ((values - low) / span * k).to(torch.int64).clamp_(max=k - 1)
            return torch.where((values >= low) & (values <= high), first + section, NONE)

        return over_neurons(observer, reach, per=k, counts=live * k)

    return Rule(begin, profiled=True)
