"""Failures before they are stored: judged once more, measured, and laid out for the shard."""

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from assay.core import norms
from assay.core.cases import MINED, Cases
from assay.core.chunks import Chunks
from assay.core.images import ssim, unit_range
from assay.core.precision import full_precision
from assay.core.streams import beside
from assay.engines.parents import line_columns
from assay.engines.seeding import LABELLED
from assay.engines.stability import Confirm
from assay.engines.unit import NONFINITE, WRONG
from assay.recipes.recipe import Stages
from assay.subjects.bench import Bench
from assay.subjects.target import Target, confidence

STORED = ("pred", "step", "cycle", "kind")
SOMETIMES = ("others_pred", MINED, "failed", "asked", "confidence")


def checked(bench: Bench, stages: Stages, found: Cases, confirm: Confirm, *, still: bool = True) -> tuple[Cases, Cases]:
    """Failures that fail again when asked anew, as often as they must, and those that do not (flaky).

    Asked beside what the GPU does already, unless the nets do not keep ``still`` when they are asked.
    """
    work = beside(_checked) if still else _checked
    return work(bench, stages, found, confirm)


def _checked(bench: Bench, stages: Stages, found: Cases, confirm: Confirm) -> tuple[Cases, Cases]:
    again = found.drop("pred").to(bench.target.device)
    if confirm.alone:
        bench = replace(bench, chunks=Chunks(1))
    failed = torch.zeros(len(found), dtype=torch.int64)
    logits = again.x.new_zeros(len(found), 0)
    for _ in range(confirm.n):
        with full_precision():
            logits = bench.logits(again)
        failed += (stages.oracle(bench, again.note(logits=logits)) | ~logits.isfinite().all(1)).cpu()
    if confirm.n > 1:
        found = found.note(failed=failed, asked=torch.full_like(failed, confirm.n))
    found = found.note(confidence=confidence(bench.target, logits).float().cpu())
    still = failed >= confirm.k
    if confirm.n == 1:  # the class and the kind that it is told by, as the model itself says
        kind = torch.where(logits.isfinite().all(1), WRONG, NONFINITE).cpu()
        told = {"pred": logits.argmax(1).cpu(), "kind": kind}
        found = found.note(**{name: torch.where(still, new, found.info[name]) for name, new in told.items()})
    return found[still], found[~still]


def as_shard(failing: Cases, seeds: Cases, scores: Iterable[str], target: Target) -> dict[str, Tensor]:
    """Columns for storing: the failures, scores and distances to their seeds, and each seed's input once."""
    rows, place = failing.info["row"].unique(return_inverse=True)
    parents = seeds.parent[rows]
    delta = failing.x - parents[place]
    image = failing.x.dim() == 4
    return {
        "x": failing.x,
        "y": failing.y,
        "origin": failing.origin,
        "seeds": parents,
        "seed": place,
        **{name: failing.info[name] for name in (*STORED, *scores, *line_columns(failing))},
        **{name: failing.info[name] for name in SOMETIMES if name in failing.info},
        **({LABELLED: seeds.info[LABELLED][rows][place]} if LABELLED in seeds.info else {}),
        "linf": norms.size(delta, "linf"),
        "l2": norms.size(delta, "l2"),
        # Similarity is defined for images only; elsewhere the column says so by -1.
        "ssim": _likeness(failing.x, parents[place], target) if image else torch.full((len(failing),), -1.0),
    }


@beside
def _likeness(x: Tensor, parents: Tensor, target: Target) -> Tensor:
    """Structural similarity to the seeds, (N,)."""
    return ssim(*(unit_range(some.to(target.device), target.spec.bounds) for some in (x, parents))).cpu()
