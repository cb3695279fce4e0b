"""Surprise coverage: how much of the range of a surprise the cases reach."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.registry import Bound, bind, register
from assay.core.specs import step
from assay.stages.coverage import Coverage, Criterion
from assay.stages.coverage.bitmap import NONE, Bitmap
from assay.stages.coverage.profile import Profile, needed
from assay.stages.surprise.training import held_out, observer_of
from assay.subjects.bench import Bench, fitted
from assay.subjects.observer import Observer, Seen


@register("criterion", paper="SADL 2019", needs=("activation",))
def sc(*, score: str = "dsa", buckets: int = 1000, lower: float | None = None, upper: float | None = None) -> Criterion:
    """Buckets, of equal ones in the range (lower, upper] of a surprise such as ``dsa`` or ``lsa(most=100)``.

    Ends that are not given are the smallest and largest finite surprise at every tenth training case, compared with the
    other nine tenths, the lower one 0 where none is negative. What lies outside the range reaches nothing.

    Formula: |{buckets of (lower, upper] that some test's surprise falls into}| / buckets.
    """
    bound = _checked(score, buckets, lower, upper)

    def on(bench: Bench, observer: Observer) -> Coverage:
        # What the bench has fitted serves here, too: none of it depends on the observer.
        bench = replace(bench, observer=observer)
        _check_layers(bench, bound)
        # Paper: an upper end chosen by hand; others take the largest value of the tests, which must then be seen twice.
        # Here: what the training data show, because cells must be fixed before the first case comes.
        low, high = _ends(bench, bound, lower, upper)

        def surprise(seen: Seen) -> Tensor:
            return _surprise(bench, bound, seen)

        def reach(seen: Seen) -> Tensor:
            return bucket_of(surprise(seen), buckets, low, high)[:, None]

        return Bitmap(reach, buckets, 1, bench.target.device, buckets, alone=surprise)

    return OnBench(on)


@dataclass(slots=True)
class OnBench:
    """A criterion that asks more of the training data than a profile tells.

    ``on`` begins it with what a bench knows; a bench that has looked at the training data is not made to do so again.
    """

    on: Callable[[Bench, Observer], Coverage]
    ends: bool = False
    profiled: bool = True

    def begin(self, observer: Observer, profile: Profile | None) -> Coverage:
        training = needed(profile, observer, "sc").training
        assert training is not None  # a profile that was fitted here has it
        target = observer.targets[0]
        return self.on(Bench(target, training=fitted(target, training)), observer)


def bucket_of(values: Tensor, buckets: int, lower: float, upper: float) -> Tensor:
    """The bucket of each value, each open below and closed above; NONE outside of (lower, upper], and for NaN."""
    place = ((values - lower) / (upper - lower) * buckets).ceil() - 1
    inside = (values > lower) & (values <= upper)
    return torch.where(inside, place.clamp(0, buckets - 1), NONE).long()


def _checked(score: str, buckets: int, lower: float | None, upper: float | None) -> Bound:
    bound = bind("score", *step(score))
    if "layers" not in bound.params:
        raise UsageError(f"sc: score must be a surprise, such as dsa, lsa or mdsa(jitter=0.01), got {score!r}")
    if buckets < 1:
        raise UsageError(f"sc: buckets must be 1 or more, got {buckets}")
    ends = [end for end in (lower, upper) if end is not None]
    if not all(map(math.isfinite, ends)) or ends != sorted(set(ends)):
        raise UsageError(f"sc: the range must be from lower to a larger upper, got {lower} and {upper}")
    return bound


def _check_layers(bench: Bench, bound: Bound) -> None:
    """Refuse a surprise at layers that nobody looks at."""
    assert bench.observer is not None
    seen = [layer.label for layer in bench.observer.layers[0].each]
    asked = observer_of(bench, bound.params["layers"])
    lost = [layer.label for layer in asked.each if layer.label not in seen]
    if lost:
        raise UsageError(
            f"sc: {bound.text} looks at layer {lost[0]}, which is not among the layers looked at ({', '.join(seen)}); "
            f"give --layers with it, or take one of these: sc(score={bound.entry.name}(layers={seen[-1]}))"
        )


def _surprise(bench: Bench, bound: Bound, seen: Seen) -> Tensor:
    """The surprise at what was seen, (N,); the inputs themselves are not asked for."""
    cases = Cases.of(seen.neurons[:, :0]).note(logits=seen.logits, neurons=seen.neurons)
    values: Tensor = bound(bench, cases)
    return values.detach().double()


def _ends(bench: Bench, bound: Bound, lower: float | None, upper: float | None) -> tuple[float, float]:
    """The range of the surprise: as given, or as held-out training data show it."""
    if lower is not None and upper is not None:
        return lower, upper
    smallest, largest = bench.once(f"ends {bound.text}", lambda: _shown(bench, bound))
    low = min(0.0, smallest) if lower is None else lower
    high = largest if upper is None else upper
    if not low < high < math.inf:
        known = "the training data" if bench.training is None else bench.training.name
        raise UsageError(f"sc: {known} do not tell the range of {bound.text}; give both ends: sc(lower=0, upper=2)")
    return low, high


def _shown(bench: Bench, bound: Bound) -> tuple[float, float]:
    """The smallest and largest finite surprise at held-out training data; infinity and its negative where none is."""
    values: Tensor = bound(*held_out(bench, bound.text, bound.params["layers"]))
    values = values[values.isfinite()]
    return (float(values.min()), float(values.max())) if len(values) else (math.inf, -math.inf)
