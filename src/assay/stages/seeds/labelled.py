"""Every case as a seed, with a label."""

from dataclasses import replace

from assay.core.cases import UNLABELLED, Cases
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.subjects.bench import Bench


@register("seeder", needs=("label",))
def labelled(bench: Bench, cases: Cases, *, rng: Stream) -> Cases:
    """All cases, right or wrong, in order; unlabelled ones take the prediction as label."""
    none = (cases.y == UNLABELLED).nonzero().flatten()
    if not len(none):
        return cases
    y = cases.y.clone()
    y[none] = bench.logits(cases[none]).argmax(1).to(y.device)
    return replace(cases, y=y)
