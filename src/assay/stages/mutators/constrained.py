"""A step uphill of the recipe's objective that only changes what light or dirt could."""

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.errors import UsageError
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.core.shapes import column
from assay.stages.mutators.ascend import by_rms
from assay.subjects.bench import Bench

KINDS = ("light", "occl", "blackout")


@register("mutator", paper="DeepXplore 2017", needs=("grad",), gradients=1)
def constrained(
    bench: Bench,
    cases: Cases,
    *,
    rng: Rows,
    kind: str = "light",
    step: float = 10.0,
    top: int = 0,
    left: int = 0,
    height: int = 10,
    width: int = 10,
    patch: int = 6,
    reach: float = 0.5,
) -> Tensor:
    """``x + step·range·g``, g the slope over its root mean square, as far as one of three constraints lets it.

    ``light``: every pixel moves by the mean of g, all in all at most ``reach`` of the range away from the seed.
    ``occl``: only the rectangle of ``height`` by ``width`` whose corner is at row ``top``, column ``left``.
    ``blackout``: one square of side ``patch`` in a place drawn anew, -1 where the mean of g in it is negative, else 0.

    Formula: x' = clip(x + step·w·C(g)), g = slope / rms(slope), w the width of the bounds, C the constraint.
    """
    _check(bench, kind, step, min(top, left), min(height, width, patch), reach)
    if "slope" not in cases.info:
        raise UsageError("constrained climbs an objective, and there is none; use recipe deepxplore")
    low, high = bench.target.spec.bounds
    slope = by_rms(cases.info["slope"])
    if kind == "light":
        return _lit(cases, step * (high - low) * slope.flatten(1).mean(1), reach * (high - low), (low, high))
    if kind == "occl":
        push = torch.zeros_like(slope)
        area = (..., slice(top, top + height), slice(left, left + width))
        push[area] = slope[area]
    else:
        push = _blackout(slope, patch, rng)
    # Paper: images are never clipped, so models are compared on pixels that do not exist, and light has no end. Here:
    # they are, and light stops at ``reach``, because a white image is no input of any class. The step is the paper's in
    # units of the range: its inputs lie in [0, 1], and there light moves a LeNet's pixels by 0.15 a step.
    return (cases.x + (high - low) * step * push).clamp_(low, high)


def _lit(cases: Cases, move: Tensor, far: float, bounds: tuple[float, float]) -> Tensor:
    """The seed in a light that is the same for all its pixels: that of the case, moved."""
    seed = cases.info["seed_x"]
    change = (cases.x - seed).flatten(1)
    # Pixels at the bounds moved less than the light did; the one that moved most tells it.
    light = change.gather(1, change.abs().argmax(1, keepdim=True)).squeeze(1)
    return (seed + column((light + move).clamp(-far, far), seed)).clamp_(*bounds)


def _blackout(slope: Tensor, patch: int, rng: Rows) -> Tensor:
    """Minus 1 in a square drawn for each case where its mean slope is negative, else and elsewhere 0."""
    sizes = [min(patch, side) for side in slope.shape[-2:]]
    marks = []
    for label, (side, size) in enumerate(zip(slope.shape[-2:], sizes, strict=True)):
        first = rng.at(label).integers((1,), side - size + 1)
        place = torch.arange(side, device=slope.device)
        marks.append((place >= first) & (place < first + size))
    inside = (marks[0][:, :, None] & marks[1][:, None, :])[:, None].expand_as(slope)
    dark = (slope * inside).flatten(1).sum(1) < 0
    return -(inside & column(dark, slope)).to(slope.dtype)


def _check(bench: Bench, kind: str, step: float, place: int, side: int, reach: float) -> None:
    if kind not in KINDS:
        raise UsageError(f"constrained: kind is one of {', '.join(KINDS)}; got {kind!r}")
    if step <= 0 or place < 0 or side < 1 or reach <= 0:
        raise UsageError("constrained: step, reach and sides must be above 0, and a corner not outside the image")
    if kind != "light" and bench.target.spec.kind != "image":
        raise UsageError(f"constrained(kind={kind}) needs images, and this target takes vectors; use kind=light")
