"""What selectors by coverage share: a criterion with nothing covered yet, and what it sees of the cases."""

import torch

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.registry import bind
from assay.core.specs import step
from assay.stages.coverage import Coverage, Criterion
from assay.stages.coverage.profile import profile_of
from assay.stages.coverage.sc import OnBench
from assay.subjects.bench import Bench
from assay.subjects.observer import COLUMNS, Observer, Seen

_ONLY_TOGETHER = ("nlc",)


def begun(bench: Bench, criterion: str, layers: str) -> tuple[Coverage, Observer]:
    """The criterion, a text such as ``kmnc(k=2)``, over these layers of the target with nothing covered."""
    bound = bind("criterion", *step(criterion))
    if bound.entry.name in _ONLY_TOGETHER:
        raise UsageError(
            f"criterion {bound.entry.name!r} says how much cases vary together and nothing of one alone, so it orders "
            "none; choose a criterion that counts cells, such as kmnc"
        )
    chosen: Criterion = bound()
    observer = bench.once(
        f"observer {layers} {chosen.ends}", lambda: Observer.of([bench.target], layers, ends=chosen.ends)
    )
    training = bench.training
    if not chosen.profiled or training is None:  # it says itself that it needs a profile
        return chosen.begin(observer, None), observer
    if isinstance(chosen, OnBench):
        return chosen.on(bench, observer), observer
    profile = bench.once(f"profile {layers}", lambda: profile_of(observer, training, bench.chunks))
    return chosen.begin(observer, profile), observer


def seen_by(bench: Bench, observer: Observer, cases: Cases) -> Seen:
    """What an observer of the target sees of the cases, cut from what the bench's own saw where that holds it all."""
    own = bench.observer
    if own is None or not all(name in cases.info for name in COLUMNS) or (observer.ends and not own.ends):
        return observer.all(cases.x, bench.chunks)
    labels = [layer.label for layer in own.layers[0].each]
    if not all(layer.label in labels for layer in observer.each):
        return observer.all(cases.x, bench.chunks)
    places = [labels.index(layer.label) for layer in observer.each]
    whole = Seen(*(cases.info[name] for name in COLUMNS))
    neurons = torch.cat([whole.neurons[:, own.slices[place]] for place in places], 1)
    low, high = (ends[:, places] if observer.ends else ends[:, :0] for ends in (whole.low, whole.high))
    return Seen(whole.logits, whole.others[:, :0], neurons, low, high)
