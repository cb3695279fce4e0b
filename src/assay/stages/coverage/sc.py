"""Surprise coverage: how much of the range of a surprise the cases reach."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.registry import Bound, bind, register
from assay.core.specs import step
from assay.stages.coverage import Coverage, Criterion
from assay.stages.coverage.bitmap import NONE, Bitmap
from assay.stages.coverage.profile import Profile, needed
from assay.stages.coverage.rule import Rule
from assay.subjects.bench import Bench, Data, fitted
from assay.subjects.layers import layers_of
from assay.subjects.observer import Observer, Seen

HELD_OUT = 10  # one of so many training cases tells how surprising the usual is


@register("criterion", paper="SADL 2019", needs=("activation",))
def sc(*, score: str = "dsa", buckets: int = 1000, lower: float = 0.0, upper: float | None = None) -> Criterion:
    """Buckets, of equal ones in the range (lower, upper] of a surprise such as ``dsa`` or ``lsa(most=100)``.

    Where ``upper`` is not given it is the largest finite surprise at every tenth training case, compared with the other
    nine tenths. What lies outside the range reaches nothing.
    """
    bound = _checked(score, buckets, lower, upper)

    def begin(observer: Observer, profile: Profile | None) -> Coverage:
        training = needed(profile, observer, "sc").training
        assert training is not None  # a profile that was fitted here has it
        target = observer.targets[0]
        known = fitted(target, training)
        bench = Bench(target, observer=observer, training=known)
        _check_layers(bench, bound)
        # Paper: an upper end chosen by hand; others take the largest value of the tests, which must then be seen twice.
        # Here: what the training data show, because cells must be fixed before the first case comes.
        top = upper if upper is not None else _largest(bench, known, bound, lower)

        def surprise(seen: Seen) -> Tensor:
            return _surprise(bench, bound, seen)

        def reach(seen: Seen) -> Tensor:
            return bucket_of(surprise(seen), buckets, lower, top)[:, None]

        return Bitmap(reach, buckets, 1, target.device, buckets, alone=surprise)

    return Rule(begin, profiled=True)


def bucket_of(values: Tensor, buckets: int, lower: float, upper: float) -> Tensor:
    """The bucket of each value, each open below and closed above; NONE outside of (lower, upper], and for NaN."""
    place = ((values - lower) / (upper - lower) * buckets).ceil() - 1
    inside = (values > lower) & (values <= upper)
    return torch.where(inside, place.clamp(0, buckets - 1), NONE).long()


def _checked(score: str, buckets: int, lower: float, upper: float | None) -> Bound:
    bound = bind("score", *step(score))
    if "layers" not in bound.params:
        raise UsageError(f"sc: score must be a surprise, such as dsa, lsa or mdsa(jitter=0.01), got {score!r}")
    if buckets < 1:
        raise UsageError(f"sc: buckets must be 1 or more, got {buckets}")
    if not math.isfinite(lower) or (upper is not None and not lower < upper < math.inf):
        raise UsageError(f"sc: the range must be from lower to a larger upper, got {lower} and {upper}")
    return bound


def _check_layers(bench: Bench, bound: Bound) -> None:
    """Refuse a surprise at layers that nobody looks at."""
    assert bench.observer is not None
    seen = [layer.label for layer in bench.observer.layers[0].each]
    asked = layers_of(bench.target, bound.params["layers"])
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


def _largest(bench: Bench, known: Data, bound: Bound, lower: float) -> float:
    """The largest finite surprise at held-out training data."""
    out = torch.arange(len(known)) % HELD_OUT == HELD_OUT - 1
    rest = Bench(bench.target, chunks=bench.chunks, training=replace(known, cases=known.cases[~out]))
    values: Tensor = bound(rest, known.cases[out])
    values = values[values.isfinite() & (values > lower)]
    if not len(values):
        raise UsageError(f"sc: {known.name} do not tell how large {bound.text} can be; give sc(upper=2)")
    return float(values.max())
