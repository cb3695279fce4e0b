"""Failures before they are stored: judged once more, measured, and laid out for the shard."""

from collections.abc import Iterable

import torch
from torch import Tensor

from assay.core import norms
from assay.core.cases import Cases
from assay.core.images import ssim
from assay.engines.parents import line_columns
from assay.recipes.recipe import Stages
from assay.subjects.bench import Bench

STORED = ("pred", "step", "cycle", "kind")


def checked(bench: Bench, stages: Stages, found: Cases | None) -> tuple[Cases, Cases] | None:
    """Failures that fail again when asked anew, and those that do not (flaky)."""
    if found is None or not len(found):
        return None
    again = found.drop("pred").to(bench.target.device)
    logits = bench.logits(again)
    still = (stages.oracle(bench, again.note(logits=logits)) | ~logits.isfinite().all(1)).cpu()
    return found[still], found[~still]


def as_shard(failing: Cases, seeds: Cases, scores: Iterable[str], device: torch.device) -> dict[str, Tensor]:
    """Columns for storing: the failures, scores and distances to their seeds, and each seed's input once."""
    rows, place = failing.info["row"].unique(return_inverse=True)
    parents = seeds.x[rows]
    delta = failing.x - parents[place]
    image = failing.x.dim() == 4
    return {
        "x": failing.x,
        "y": failing.y,
        "origin": failing.origin,
        "seeds": parents,
        "seed": place,
        **{name: failing.info[name] for name in (*STORED, *scores, *line_columns(failing))},
        **({"others_pred": failing.info["others_pred"]} if "others_pred" in failing.info else {}),
        "linf": norms.size(delta, "linf"),
        "l2": norms.size(delta, "l2"),
        # Similarity is defined for images only; elsewhere the column says so by -1.
        "ssim": ssim(failing.x.to(device), parents[place].to(device)).cpu()
        if image
        else torch.full((len(failing),), -1.0),
    }
