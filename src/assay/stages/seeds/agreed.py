"""Seeds that all models agree on."""

from dataclasses import replace

import torch

from assay.core.cases import MINED, UNLABELLED, Cases
from assay.core.errors import UsageError
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.stages.twins import labelled
from assay.subjects.bench import Bench

ON = ("label", "error", "any")
REFERENCES = ("answer", "label")


@register("seeder", paper="DeepXplore 2017", needs=("label", "siblings"))
def agreed(bench: Bench, cases: Cases, *, rng: Stream, on: str = "label", reference: str = "answer") -> Cases:
    """The cases to which the target and the other models give the same class, and that their label where they have one.

    Unlabelled ones take the class as label. With ``on=error`` the models agree on another class than the label: an
    attack on one has carried over to all; unlabelled cases take the class that the vulnerable model gives to their
    clean parent. With ``on=any`` nothing is dropped. In both, the target's class is noted as ``mined``, whose loss is
    climbed; with ``reference=label`` it is not, and that of the label is.
    """
    if on not in ON or reference not in REFERENCES:
        raise UsageError(
            f"agreed: on is one of {', '.join(ON)} and reference one of {', '.join(REFERENCES)}; "
            f"got {on!r} and {reference!r}"
        )
    own = bench.logits(cases).argmax(1).to(cases.y.device)
    if on == "any":
        return _mined(labelled(bench, cases), own, reference)
    same = (bench.others(cases).argmax(2).to(own.device) == own[:, None]).all(1)
    if on == "error":
        told = labelled(bench, cases)
        return _mined(told, own, reference)[same & (own != told.y)]
    # DeepXplore: labels are not looked at, and seeds on which the models differ already are reported. Here: a seed that
    # is known to be wrong is left out, as everywhere, and one that needs no search is no find of the search.
    y = torch.where(cases.y == UNLABELLED, own, cases.y)
    return replace(cases, y=y)[same & (own == y)]


def _mined(cases: Cases, own: torch.Tensor, reference: str) -> Cases:
    """The cases with the class that was mined, where it is to be the reference."""
    return cases.note(**{MINED: own}) if reference == "answer" else cases.drop(MINED)
